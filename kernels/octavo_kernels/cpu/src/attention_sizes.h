// How many tokens, rows and vectors the inner loops of attention work on at a time.
//
// Knows registers. Does not know what is in them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "vectors.h"

namespace octavo {

// Positions of a piece: pieces begin at multiples of it, whatever the batch. Rows of scores and of
// weights are as far apart.
constexpr int64_t PIECE = 256;
// Rows that a kernel works on at a time, at most; on AMX.
constexpr int GROUP_ROWS = 6;
constexpr int STACK_ROWS = 16;
// Stacks that take steps together.
constexpr int STACKS_AT_ONCE = 3;
// Vectors that a kernel works on at a time: as many as there are registers for.
constexpr int widest(int rows) { return LANES == 8 && rows > 3 ? 2 : 4; }

// Calls work(std::integral_constant<int, n>) for a number that is known when the code runs.
template <int most, class Work>
void with_constant(int64_t n, Work&& work) {
  if constexpr (most > 1) {
    if (n < most) return with_constant<most - 1>(n, work);
  }
  work(std::integral_constant<int, most>());
}

// Calls work(n, i) with constants n for the vectors from i = first on: n at a time, `most` (4, 2 or
// 1) while there are so many.
template <int most, class Work>
void each_width(int64_t first, int64_t last, Work&& work) {
  int64_t i = first;
  for (; i + most <= last; i += most) work(std::integral_constant<int, most>(), i);
  if constexpr (most > 1)
    if (i < last) each_width<most / 2>(i, last, work);
}

}  // namespace octavo
