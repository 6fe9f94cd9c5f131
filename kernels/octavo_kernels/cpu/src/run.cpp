// Runs lists of calls on a team of threads: what Python sees of this library.
//
// Knows the operations by name. Does not know what a list means.
#include <cstring>

#include "adapted_runs.h"
#include "call.h"
#include "operations.h"
#include "parallel.h"
#include "row_blocks.h"
#include "vectors.h"

namespace octavo {

extern constexpr NamedOperation OPERATIONS[] = {
    row_wise<RmsNorm, rms_norm>("rms_norm"),
    row_wise<AddRmsNorm, add_rms_norm>("add_rms_norm"),
    row_wise<Rotary, rotary>("rotary"),
    row_wise<GatedActivation, gated_activation>("gated_activation"),
    row_wise<Elementwise, elementwise>("elementwise"),
    named<GatherRows, gather_rows>("gather_rows"),
    row_wise<Linear, linear>("linear"),
    row_wise<Embedding, embedding>("embedding"),
    named<Sample, sample>("sample"),
    named<Logprobs, logprobs>("logprobs"),
    named<Adapt, adapt>("adapt"),
    row_wise<WriteKv, write_kv>("write_kv"),
    named<Attention, attention>("attention"),
};

constexpr int64_t NUM_OPERATIONS = sizeof(OPERATIONS) / sizeof(OPERATIONS[0]);

}  // namespace octavo

using namespace octavo;

// The lanes of a vector: packed weights depend on it.
extern "C" int64_t octavo_lanes() { return LANES; }

// The number of the operation of that name, -1 where there is none.
extern "C" int64_t octavo_operation(const char* name) {
  for (int64_t i = 0; i < NUM_OPERATIONS; i++)
    if (std::strcmp(OPERATIONS[i].name, name) == 0) return i;
  return -1;
}

// The size of the arguments of an operation, by which Python's mirror of them is checked.
extern "C" int64_t octavo_arguments_bytes(int64_t operation) {
  return OPERATIONS[operation].arguments_bytes;
}

// Makes calls in order, inside one parallel region. `shared` is memory that operations may use for
// what they leave from one phase to the next, 64-byte aligned, as large as the hungriest wants.
extern "C" void octavo_run(const Call* calls, int64_t num_calls, int64_t num_threads,
                           void* shared) {
  static thread_local Phases phases;
  Phases& run = phases;
  run.reset(num_calls * MAX_PHASES);
  on_team(num_threads, [&] {
    Worker worker(run, omp_get_num_threads(), shared);
    for (int64_t i = 0; i < num_calls;) {
      const RowRun found = find_run(calls + i, num_calls - i, worker.num_threads);
      const int64_t adapted = found.length > 1 ? 0 : find_adapted(calls + i, num_calls - i);
      if (found.length > 1) {
        make_run(calls + i, found, worker);
        i += found.length;
      } else if (adapted > 0) {
        make_adapted(calls + i, adapted, worker);
        i += adapted;
      } else {
        OPERATIONS[calls[i].operation].run(calls[i].arguments, worker);
        i++;
      }
    }
  });
}
