// How rows of logits are dealt out to threads, and what a row leaves between phases.
//
// Knows rows, blocks and memory. Does not know what is computed.
#pragma once

#include <functional>

#include "sampling_descent.h"
#include "sampling_selection.h"
#include "sizes.h"
#include "team.h"

namespace octavo {

// Blocks that are worth another thread's while.
constexpr int64_t PART_BLOCKS = 16;

// In how many parts each row is cut: one where there are rows enough for all threads.
inline int64_t parts_of(int64_t rows, int64_t blocks, int num_threads) {
  const int64_t pieces = 4 * num_threads;
  if (num_threads == 1 || rows >= pieces) return 1;
  return std::max<int64_t>(1, std::min(divide_up(pieces, rows), blocks / PART_BLOCKS));
}

// What a row leaves in the memory of the run: the largest of each group, each block's weight.
struct RowMemory {
  float* tops;
  float* sums;

  static int64_t floats(int64_t blocks) { return (blocks * (GROUPS + 1) + 15) / 16 * 16; }
  RowMemory(void* shared, int64_t row, int64_t blocks)
      : tops(static_cast<float*>(shared) + row * floats(blocks)), sums(tops + blocks * GROUPS) {}
};

// Memory of a thread, for one row at a time.
struct RowScratch {
  Histogram* histogram;
  double* ends;
  Entry* entries;

  RowScratch(Scratch& scratch, int64_t blocks) {
    // whole cache lines each
    const int64_t first = (int64_t(sizeof(Histogram)) + 63) / 64 * 64;
    const int64_t second = (std::max(blocks, BLOCK_IDS) * int64_t(sizeof(double)) + 63) / 64 * 64;
    const int64_t third = (blocks * BLOCK_IDS + 1) * int64_t(sizeof(Entry));
    char* memory = scratch.get<char>(first + second + third);
    histogram = reinterpret_cast<Histogram*>(memory);
    ends = reinterpret_cast<double*>(memory + first);
    entries = reinterpret_cast<Entry*>(memory + first + second);
  }
};

// The k-th largest number of a row, if its groups are at least as many; else `lowest`. No fewer
// than k are as large.
inline float bound_of_largest(const SelectionRow& row, int64_t k, float lowest,
                              const RowScratch& scratch) {
  const int64_t groups = row.x.count * GROUPS;
  if (k > groups) return lowest;
  float* tops = reinterpret_cast<float*>(scratch.entries);
  std::memcpy(tops, row.tops, size_t(groups) * sizeof(float));
  std::nth_element(tops, tops + k - 1, tops + groups, std::greater<float>());
  return std::max(lowest, tops[k - 1]);
}

}  // namespace octavo
