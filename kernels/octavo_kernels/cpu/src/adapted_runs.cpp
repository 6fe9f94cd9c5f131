// Linear layers that are made along with what adapters change of their results.
#include "adapted_runs.h"

#include "lora.h"
#include "vectors.h"

namespace octavo {

namespace {

template <class Arguments, void (*run)(const Arguments&, Worker&)>
const Arguments* arguments_of(const Call& made) {
  if (OPERATIONS[made.operation].run != call<Arguments, run>) return nullptr;
  return static_cast<const Arguments*>(made.arguments);
}

}  // namespace

int64_t find_adapted(const Call* calls, int64_t count) {
  const Linear* first = arguments_of<Linear, linear>(calls[0]);
  if (first == nullptr || *first->rows <= 0) return 0;
  int64_t length = 1;
  while (length < count && arguments_of<Linear, linear>(calls[length]) != nullptr) length++;
  if (length == count) return 0;
  const Adapt* change = arguments_of<Adapt, adapt>(calls[length]);
  if (change == nullptr || change->batch->num_tokens == 0) return 0;
  // the linear layers before it may be of another matrix
  int64_t outputs = 0;
  for (int64_t i = 0; i < length; i++) {
    const Linear& part = *arguments_of<Linear, linear>(calls[i]);
    const bool is_next = part.out == change->out + outputs && part.x == change->x &&
                         part.rows == first->rows && outputs % LANES == 0;
    if (!is_next) return 0;
    outputs += part.outputs;
  }
  return outputs == change->outputs ? length + 1 : 0;
}

void make_adapted(const Call* calls, int64_t length, Worker& worker) {
  const Adapt& arguments = *arguments_of<Adapt, adapt>(calls[length - 1]);
  const Linear& first = *arguments_of<Linear, linear>(calls[0]);
  // behind the rows of x as linear layers lay them out
  char* ranks = static_cast<char*>(worker.shared) + linear_bytes(*first.rows, arguments.columns);
  const LowRankChange change(arguments, reinterpret_cast<float*>(ranks));
  for (int64_t i = 0; i < length - 1; i++) {
    const Linear& part = *arguments_of<Linear, linear>(calls[i]);
    adapted_linear(part, worker, change, part.out - arguments.out, i > 0);
  }
}

}  // namespace octavo
