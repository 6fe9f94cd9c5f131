// How keys and values lie in the cache: one page for each block and key head.
//
// A page holds `tokens` keys, then as many values, then what scales them:
//   keys    [dims][tokens]  so that a vector is one dimension of LANES tokens
//   values  [tokens][dims]  so that a vector is LANES dimensions of one token
//   scales  four rows of `tokens` numbers, see below
// dims is the head's size, rounded up to whole vectors; what is added is 0.
//   float32, float16  no scales
//   int8   code * scale: [key scale][value scale], float32
//   int4   code * scale + least: [key scale][key least][value scale][value least], float16. Keys:
//          dims 2i and 2i + 1 of a token share byte i; values: of 2 * LANES dims, a byte holds
//          number j (low bits) and number LANES + j
// Knows bytes. Does not know queries, sequences or blocks' owners.
#pragma once

#include <cstdint>

#include "vectors.h"

namespace octavo {

// The numbers that Python uses, `octavo_kernels.cpu.attention`.
enum class CacheFormat : int64_t { FLOAT32 = 0, FLOAT16 = 1, INT8 = 2, INT4 = 3 };

constexpr int64_t MAX_CODE_INT8 = 127, MAX_CODE_INT4 = 15;

inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

struct PageShape {
  CacheFormat format;
  int64_t dims, tokens;

  static PageShape of(int64_t head_dim, int64_t block_size, int64_t format) {
    const CacheFormat kind = CacheFormat(format);
    const int64_t unit = kind == CacheFormat::INT4 ? 2 * LANES : LANES;
    return {kind, round_up(head_dim, unit), block_size};
  }
  int64_t bits() const {
    switch (format) {
      case CacheFormat::FLOAT32: return 32;
      case CacheFormat::FLOAT16: return 16;
      case CacheFormat::INT8: return 8;
      default: return 4;
    }
  }
  // of the keys or the values of one token
  int64_t token_bytes() const { return dims * bits() / 8; }
  // from the keys to the values of a page
  int64_t values() const { return tokens * token_bytes(); }
  int64_t scales() const { return 2 * values(); }
  int64_t scale_bytes() const {
    switch (format) {
      case CacheFormat::INT8: return 2 * 4;
      case CacheFormat::INT4: return 4 * 2;
      default: return 0;
    }
  }
  // of two dimensions of keys: what a kernel steps by
  int64_t pair_bytes() const { return tokens * 2 * bits() / 8; }
  int64_t bytes() const { return round_up(scales() + tokens * scale_bytes(), 64); }
};

// A float as the nearest half, and back.
inline uint16_t float_to_half(float x) {
  alignas(64) uint16_t halves[LANES];
  store_half(halves, Floats(x));
  return halves[0];
}
inline float half_to_float(uint16_t half) {
  alignas(64) uint16_t halves[LANES] = {half};
  alignas(64) float floats[LANES];
  store(floats, load_half(halves));
  return floats[0];
}

}  // namespace octavo
