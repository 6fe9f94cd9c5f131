// Draws an id in proportion to weights, by halving the range of ids again and again.
//
// `octavo_kernels.reference.descent` says the rule. Knows weights and noise. Does not know filters.
#pragma once

#include "sampling_noise.h"
#include "sampling_row.h"

namespace octavo {

// How often `width` ids are halved until one is left.
inline int num_levels(int64_t width) {
  int levels = 0;
  while (int64_t(1) << levels < width) levels++;
  return levels;
}

// A place of `ends`, the sums of what lies at each place and before, after so many levels.
inline int64_t descend(const double* ends, int64_t count, int levels, LevelNoise& noise) {
  int64_t start = 0;
  double below = 0.0, above = ends[count - 1];
  for (int64_t half = int64_t(1) << levels >> 1; half > 0; half >>= 1) {
    const double middle = ends[std::min(start + half, count) - 1];
    if (noise.next() * (above - below) >= middle - below && middle < above) {
      start += half;
      below = middle;
    } else {
      above = middle;
    }
  }
  return start;
}

// Draws one of `width` ids. sums: of the weights of each block; ends: room for as many, and for a
// block's ids.
inline int64_t draw(const Blocks& x, int64_t width, const Weights& weights, const float* sums,
                    double uniform, double* ends) {
  alignas(64) float numbers[BLOCK_IDS];
  const int levels = num_levels(width), inner = std::min(levels, num_levels(BLOCK_IDS));
  LevelNoise noise(uniform);
  double total = 0.0;
  for (int64_t block = 0; block < x.count; block++) ends[block] = total += sums[block];
  const int64_t block = descend(ends, x.count, levels - inner, noise);
  weights(x[block], BLOCK_IDS, block * BLOCK_IDS, numbers);
  total = 0.0;
  for (int64_t i = 0; i < BLOCK_IDS; i++) ends[i] = total += numbers[i];
  return block * BLOCK_IDS + descend(ends, BLOCK_IDS, inner, noise);
}

}  // namespace octavo
