// Runs of calls that are made block by block of rows.
#include "row_blocks.h"

#include <algorithm>
#include <cstring>

#include "sizes.h"

namespace octavo {

namespace {

// With fewer rows, caches hold what calls leave for each other.
constexpr int64_t LEAST_ROWS = 64;
constexpr int64_t MOST_BLOCK_ROWS = 64;
// A block's rows are whole multiples of this, as operations take as many at once.
constexpr int64_t ROWS_AT_ONCE = 16;
// The most calls of a run.
constexpr int64_t MOST_CALLS = 32;

// Where the rows of an argument lie: `first`, `first` + stride, ...
struct Place {
  const char* first;
  int64_t stride;
};

// The arguments of a call that differ between two rows.
struct Places {
  Place places[4];
  int64_t count = 0;
};

Places places_of(const Call& call) {
  constexpr int64_t WORDS = MAX_ARGUMENTS_BYTES / sizeof(const char*);
  const NamedOperation& operation = OPERATIONS[call.operation];
  const int64_t* count = operation.row_wise.count(call.arguments);
  const char* words[2][WORDS];
  for (int64_t row = 0; row < 2; row++) {
    alignas(16) char arguments[MAX_ARGUMENTS_BYTES];
    operation.row_wise.move(arguments, call.arguments, row, count);
    std::memcpy(words[row], arguments, size_t(operation.arguments_bytes));
  }
  Places found;
  for (int64_t i = 0; i < operation.arguments_bytes / int64_t(sizeof(const char*)); i++)
    if (words[0][i] != words[1][i])
      found.places[found.count++] = {words[0][i], words[1][i] - words[0][i]};
  return found;
}

// Whether row i of one place never meets another row than row i of the other.
bool are_apart(const Place& a, const Place& b, int64_t rows) {
  if (a.stride == b.stride && std::abs(a.first - b.first) < a.stride) return true;
  return a.first + rows * a.stride <= b.first || b.first + rows * b.stride <= a.first;
}

// Whether a call takes over what the one before it left in the shared memory.
bool follows(const Call& call) {
  const RowWise& operation = OPERATIONS[call.operation].row_wise;
  return operation.count != nullptr && operation.follows(call.arguments);
}

}  // namespace

RowRun find_run(const Call* calls, int64_t count, int64_t num_threads) {
  RowRun run;
  const RowWise& first = OPERATIONS[calls->operation].row_wise;
  if (first.count == nullptr || follows(*calls)) return run;
  const int64_t* rows = first.count(calls->arguments);
  if (*rows < LEAST_ROWS) return run;
  run.rows = *rows;
  Places known[MOST_CALLS];
  for (; run.length < std::min(count, MOST_CALLS); run.length++) {
    const Call& call = calls[run.length];
    const RowWise& next = OPERATIONS[call.operation].row_wise;
    if (next.count == nullptr || next.count(call.arguments) != rows) break;
    const Places places = places_of(call);
    bool fits = true;
    for (int64_t i = 0; i < run.length; i++)
      for (int64_t j = 0; j < known[i].count; j++)
        for (int64_t k = 0; k < places.count; k++)
          fits = fits && are_apart(known[i].places[j], places.places[k], run.rows);
    if (!fits) break;
    known[run.length] = places;
  }
  // what a call takes over from the one before has to be of the same rows
  while (run.length > 0 && run.length < count && follows(calls[run.length])) run.length--;
  // two blocks for each thread, so that one can be late
  const int64_t wanted = run.rows / (2 * num_threads) / ROWS_AT_ONCE * ROWS_AT_ONCE;
  run.block_rows = std::clamp(wanted, ROWS_AT_ONCE, MOST_BLOCK_ROWS);
  return run;
}

void make_run(const Call* calls, const RowRun& run, Worker& worker) {
  // what the largest block needs; the last may be smaller
  int64_t shared_bytes = 0;
  for (int64_t i = 0; i < run.length; i++) {
    const RowWise& operation = OPERATIONS[calls[i].operation].row_wise;
    shared_bytes =
        std::max(shared_bytes, operation.shared_bytes(calls[i].arguments, run.block_rows));
  }
  worker.share(divide_up(run.rows, run.block_rows), [&](int64_t block) {
    const int64_t row = block * run.block_rows;
    const int64_t count = std::min(run.block_rows, run.rows - row);
    Worker alone(worker.own_shared().get<char>(shared_bytes));
    for (int64_t i = 0; i < run.length; i++) {
      const NamedOperation& operation = OPERATIONS[calls[i].operation];
      alignas(16) char arguments[MAX_ARGUMENTS_BYTES];
      operation.row_wise.move(arguments, calls[i].arguments, row, &count);
      operation.run(arguments, alone);
    }
  });
}

}  // namespace octavo
