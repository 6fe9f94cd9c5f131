// Rounds vectors of floats to codes of eight or four bits, with what scales them.
//
// Numbers that are not finite make the scale NaN, so that they show in every product. Knows
// numbers. Does not know where codes are kept.
#pragma once

#include <algorithm>

#include "vectors.h"

namespace octavo {

// The least and the largest of some numbers; `poison` is NaN where one is not finite, else 0.
struct Extent {
  float least, most, poison;

  // count: whole vectors
  static Extent of(const float* x, int64_t count) {
    Floats least = load(x), most = least, poison(0.0f);
    for (int64_t i = 0; i < count; i += LANES) {
      const Floats value = load(x + i);
      least = min(least, value);
      most = max(most, value);
      poison = fma(value, Floats(0.0f), poison);
    }
    return {-largest(Floats(0.0f) - least), largest(most), sum(poison)};
  }
};

// Signed bytes, for code * scale: returns the scale. count: whole vectors.
inline float round_to_bytes(const float* x, int64_t count, int8_t* codes) {
  constexpr float most_code = 127.0f;
  const Extent extent = Extent::of(x, count);
  const float most = std::max(extent.most, -extent.least);
  // below this the inverse is no float
  const float inverse = most > 1e-35f ? most_code / most : 0.0f;
  for (int64_t i = 0; i < count; i += LANES)
    store_bytes(codes + i, to_ints(load(x + i) * Floats(inverse)));
  return most / most_code + extent.poison;
}

// Numbers from 0 to 15, one a byte, for scale * (code + offset); no scale is negative.
struct NibbleScale {
  float scale, offset;
};
inline NibbleScale round_to_nibbles(const float* x, int64_t count, int8_t* codes) {
  constexpr float most_code = 15.0f;
  const Extent extent = Extent::of(x, count);
  const float width = extent.most - extent.least;
  // numbers that are about equal: their codes are 0, and the offset is their sign
  const bool is_flat = !(width > 1e-30f && width > 1e-6f * std::abs(extent.least));
  const float scale = is_flat ? std::abs(extent.least) : width / most_code;
  const float inverse = is_flat ? 0.0f : most_code / width;
  for (int64_t i = 0; i < count; i += LANES) {
    const Floats code = (load(x + i) - Floats(extent.least)) * Floats(inverse);
    // what is no number becomes 0
    store_bytes(codes + i, to_ints(min(max(code, Floats(0.0f)), Floats(most_code))));
  }
  const float flat_offset = extent.least < 0.0f ? -1.0f : 1.0f;
  return {scale + extent.poison, is_flat ? flat_offset : extent.least / scale};
}

}  // namespace octavo
