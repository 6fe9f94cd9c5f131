// How keys and values lie in the cache: one page for each block and key head.
//
// A page holds keys, then values, then what scales them. `dims` is the head's size, rounded up to
// whole vectors; what is added is 0.
//   float32, float16
//     keys    [dims][tokens]       so that a vector is one dimension of LANES tokens
//     values  [tokens][dims]       so that a vector is LANES dimensions of one token
//   int8, int4 hold rotated numbers (hadamard.h), as codes: for integer products
//     keys    [dims / 4][tokens][4]      signed bytes + WEIGHT_BIAS, for code * scale
//     values  [tokens / 2][dims][2]      int8: signed bytes, for code * scale
//             [tokens / 2][dims / 2][2]  int4: of 2 * LANES dimensions, a byte holds number j (low
//                                        bits) and number LANES + j, for scale * (code + offset)
//     scales  [tokens] each: key scale, value scale; int4: value offset
// Keys keep 8 bits in int4: four bits of them cost a small model 5 % of its perplexity, four bits
// of values less than 1 %.
// Knows bytes. Does not know queries, sequences or blocks' owners.
#pragma once

#include <cstdint>

#include "sizes.h"
#include "vectors.h"

namespace octavo {

// The numbers that Python uses, `octavo_kernels.cpu.attention`.
enum class CacheFormat : int64_t { FLOAT32 = 0, FLOAT16 = 1, INT8 = 2, INT4 = 3 };

struct PageShape {
  CacheFormat format;
  int64_t dims, tokens;

  static PageShape of(int64_t head_dim, int64_t block_size, int64_t format) {
    const CacheFormat kind = CacheFormat(format);
    const int64_t unit = kind == CacheFormat::INT4 ? 2 * LANES : LANES;
    return {kind, round_up(head_dim, unit), block_size};
  }
  bool is_coded() const { return format == CacheFormat::INT8 || format == CacheFormat::INT4; }
  int64_t key_bits() const {
    return format == CacheFormat::FLOAT32 ? 32 : format == CacheFormat::FLOAT16 ? 16 : 8;
  }
  int64_t value_bits() const { return format == CacheFormat::INT4 ? 4 : key_bits(); }
  // of one token
  int64_t key_bytes() const { return dims * key_bits() / 8; }
  int64_t value_bytes() const { return dims * value_bits() / 8; }
  // Keys: bytes that a token has in a row, and from one row to the next.
  int64_t cell_bytes() const { return is_coded() ? 4 : key_bits() / 8; }
  int64_t row_bytes() const { return tokens * cell_bytes(); }
  // from the keys to the values, and to the scales
  int64_t values() const { return tokens * key_bytes(); }
  int64_t scales() const {
    return round_up(values() + round_up(tokens, is_coded() ? 2 : 1) * value_bytes(), 4);
  }
  int64_t num_scales() const {
    return format == CacheFormat::INT4 ? 3 : format == CacheFormat::INT8 ? 2 : 0;
  }
  int64_t bytes() const { return round_up(scales() + num_scales() * tokens * 4, 64); }
};

}  // namespace octavo
