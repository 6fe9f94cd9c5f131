// The inner loops of attention over codes: integer products, as kv_cache.h lays their factors out.
//
// Queries are signed bytes with a scale for each row, weights of values signed shorts: a sum over a
// head, or over a piece, fits into 32 bits. Integer sums are exact, so that rows have the same bits
// whatever they are computed beside, and a token that a row does not see has weight 0.
// Knows codes. Does not know positions or softmax.
#pragma once

#include <algorithm>

#include "attention_sizes.h"
#include "vectors.h"

namespace octavo {

// The largest weight.
constexpr float MOST_WEIGHT = 32767.0f;

struct CodedKeys {
  const uint8_t* const* vectors;  // where each vector begins
  const uint8_t* const* ahead;    // for each, what to fetch from memory meanwhile; may be null
  const float* scales;            // by token
  int64_t row_bytes, dims;
};

// Rows of queries: codes [dims / 4][rows][4].
struct CodedQueries {
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;  // of the codes
};

// scores[r][...] = queries[r] . keys, for `vectors` vectors of tokens from `first` on.
template <int rows, int vectors>
void dot_codes(const CodedKeys& keys, int64_t first, const CodedQueries& queries, float* scores) {
  Products<8> products[rows][vectors];
  const uint8_t* p[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) p[v] = keys.vectors[first + v];
  const int8_t* codes = queries.codes;
  // j: 0 and 1 for the first rows of keys, anything else for the others
  const auto add_row = [&](int j) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      const Bytes key = load_packed(p[v]);
      p[v] += keys.row_bytes;
#pragma GCC unroll 8
      for (int r = 0; r < rows; r++) products[r][v].add(key, codes + 4 * r, j);
    }
    codes += 4 * rows;
  };
  const bool is_fetching = keys.ahead != nullptr;
  add_row(0);
  if (keys.dims > 4) add_row(1);
  constexpr int64_t step = 4 * LANES;
  for (int64_t i = 2; i < keys.dims / 4; i++) {
    if (is_fetching && i * step % 64 < step) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) __builtin_prefetch(keys.ahead[first + v] + i * step);
    }
    add_row(2);
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
    const Ints bias(WEIGHT_BIAS * queries.sums[r]);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      const Floats scale = Floats(queries.scales[r]) * load(keys.scales + (first + v) * LANES);
      store(scores + r * PIECE + (first + v) * LANES,
            to_floats(products[r][v].total() - bias) * scale);
    }
  }
}

struct CodedValues {
  const uint8_t* const* vectors;  // where each vector of tokens begins
  const uint8_t* const* ahead;    // for each, what to fetch from memory meanwhile; may be null
  int64_t value_bytes;            // of a token
  int64_t first, last;            // vectors
};

// What a row's sums are of, weights and codes, are times `unit`; `common` is added to all.
struct WeightScale {
  float unit, common;
};

struct ByteValues {
  static constexpr int64_t BITS = 8;
  // `count` vectors of dimensions of two tokens
  template <int count>
  static void load(const uint8_t* p, Pairs* out) {
#pragma GCC unroll 4
    for (int v = 0; v < count; v++)
      out[v] = load_pairs(reinterpret_cast<const int8_t*>(p) + 2 * v * LANES);
  }
};

struct NibbleValues {
  static constexpr int64_t BITS = 4;
  template <int count>
  static void load(const uint8_t* p, Pairs* out) {
#pragma GCC unroll 2
    for (int v = 0; v < count; v += 2) load_nibble_pairs(p + v * LANES, out[v], out[v + 1]);
  }
};

// out[r][...] = common + unit * weights[r] . values, for `vectors` vectors of dimensions from `dim`
// on.  weights: [rows][PIECE].
template <class Kind, int rows, int vectors>
void weigh_codes(const CodedValues& values, int64_t dim, const int16_t* weights,
                 const WeightScale* scales, float* out, int64_t stride) {
  Ints sums[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[r][v] = Ints(0);
  const int64_t pair_bytes = 2 * values.value_bytes, offset = 2 * dim * Kind::BITS / 8;
  // whoever takes the first dimensions fetches for the others
  const bool is_fetching = values.ahead != nullptr && dim == 0;
  for (int64_t i = values.first; i < values.last; i++) {
    const uint8_t* p = values.vectors[i] + offset;
    const int16_t* pair = weights + i * LANES;
    for (int64_t token = 0; token < LANES; token += 2, p += pair_bytes, pair += 2) {
      if (is_fetching)
        for (int64_t line = 0; line < pair_bytes; line += 64)
          __builtin_prefetch(values.ahead[i] + token / 2 * pair_bytes + line);
      Pairs value[vectors];
      Kind::template load<vectors>(p, value);
#pragma GCC unroll 8
      for (int r = 0; r < rows; r++) {
        const int16_t* own = pair + r * PIECE;
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sums[r][v] = add_products(sums[r][v], value[v], own);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
      store(out + r * stride + dim + v * LANES,
            fma(to_floats(sums[r][v]), Floats(scales[r].unit), Floats(scales[r].common)));
}

// Vectors that are worked on at a time.
constexpr int widest_dot(int rows) { return LANES == 16 ? 4 : rows > 3 ? 1 : 2; }

inline void dot_all_codes(const CodedKeys& keys, int64_t first, int64_t last,
                          const CodedQueries& queries, int64_t rows, float* scores) {
  with_constant<GROUP_ROWS>(rows, [&](auto count) {
    constexpr int R = decltype(count)::value;
    each_width<widest_dot(R)>(first, last, [&](auto width, int64_t v) {
      dot_codes<R, decltype(width)::value>(keys, v, queries, scores);
    });
  });
}

template <class Kind>
void weigh_all_codes(const CodedValues& values, int64_t dims, const int16_t* weights,
                     const WeightScale* scales, int64_t rows, float* out, int64_t stride) {
  with_constant<GROUP_ROWS>(rows, [&](auto count) {
    constexpr int R = decltype(count)::value;
    // nibbles come in pairs of vectors
    constexpr int pairs = Kind::BITS == 4 ? 2 : 1;
    each_width<widest(R) / pairs>(0, dims / LANES / pairs, [&](auto width, int64_t v) {
      weigh_codes<Kind, R, pairs * decltype(width)::value>(values, pairs * v * LANES, weights,
                                                           scales, out, stride);
    });
  });
}

}  // namespace octavo
