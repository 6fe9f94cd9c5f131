// Rotates heads, so that no dimension holds much more than the others.
//
// Rounding to few bits goes by the largest number of a head; a rotation by Hadamard's matrix H
// spreads what a few dimensions hold over all of them. As H is symmetric and H H = n, products of
// rotated queries and keys are n times those of plain ones, and what is weighed is rotated back by
// H / n.  (Ashkboos et al., QuaRot, 2024.)  Knows vectors alone.
#pragma once

#include "vectors.h"

namespace octavo {

// Dimensions that are rotated together: the largest power of two that divides a head.
inline int64_t rotated_dims(int64_t head_dim) { return head_dim & -head_dim; }

// 1 and -1 by turns, `stride` of each.
template <int stride>
struct Signs {
  alignas(64) float of[LANES];
  constexpr Signs() : of() {
    for (int i = 0; i < LANES; i++) of[i] = i & stride ? -1.0f : 1.0f;
  }
};

// Of numbers `stride` lanes apart: their sum in the first's place, their difference in the other's.
template <int stride>
inline Floats sums_and_differences(Floats x) {
  static constexpr Signs<stride> signs;
  return fma(x, load(signs.of), swap_lanes<stride>(x));
}

// x = H x, for each `block` of dimensions, a power of two; count: whole vectors.
inline void rotate(float* x, int64_t count, int64_t block) {
  for (int64_t i = 0; i < count; i += LANES) {
    Floats value = load(x + i);
    if (block > 1) value = sums_and_differences<1>(value);
    if (block > 2) value = sums_and_differences<2>(value);
    if constexpr (LANES > 4)
      if (block > 4) value = sums_and_differences<4>(value);
    if constexpr (LANES > 8)
      if (block > 8) value = sums_and_differences<8>(value);
    store(x + i, value);
  }
  for (int64_t stride = LANES; stride < block; stride *= 2)
    for (int64_t i = 0; i < count; i += 2 * stride)
      for (int64_t j = i; j < i + stride; j += LANES) {
        const Floats first = load(x + j), second = load(x + j + stride);
        store(x + j, first + second);
        store(x + j + stride, first - second);
      }
}

}  // namespace octavo
