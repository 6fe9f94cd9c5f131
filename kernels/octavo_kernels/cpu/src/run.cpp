// Runs lists of calls on a team of threads: what Python sees of this library.
//
// Knows the operations by name. Does not know what a list means.
#include <cstring>

#include "call.h"
#include "operations.h"
#include "parallel.h"
#include "vectors.h"

namespace octavo {

constexpr NamedOperation OPERATIONS[] = {
    named<RmsNorm, rms_norm>("rms_norm"),
    named<AddRmsNorm, add_rms_norm>("add_rms_norm"),
    named<Rotary, rotary>("rotary"),
    named<GatedActivation, gated_activation>("gated_activation"),
    named<Elementwise, elementwise>("elementwise"),
    named<GatherRows, gather_rows>("gather_rows"),
    named<Linear, linear>("linear"),
    named<Embedding, embedding>("embedding"),
    named<Sample, sample>("sample"),
    named<Logprobs, logprobs>("logprobs"),
    named<Adapt, adapt>("adapt"),
    named<WriteKv, write_kv>("write_kv"),
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
    for (int64_t i = 0; i < num_calls; i++)
      OPERATIONS[calls[i].operation].run(calls[i].arguments, worker);
  });
}
