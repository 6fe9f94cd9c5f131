// The inner loops of attention over floats: queries times keys, weights times values.
//
// A vector of the cache is LANES neighbouring tokens. Every sum is one chain of fused
// multiply-adds in rising order of its dimension or token, however many rows and vectors a kernel
// works on at a time: a row's bits do not depend on what it is computed beside.
// Knows rows of keys and values. Does not know positions, blocks or softmax.
#pragma once

#include <algorithm>

#include "attention_sizes.h"
#include "vectors.h"

namespace octavo {

// ---------------------------------------------------------------- how numbers become floats

// Vectors of numbers of some type.
template <class Number, Floats (*read)(const Number*)>
struct Plain {
  static constexpr int64_t BYTES = sizeof(Number);
  static Floats vector(const uint8_t* p) { return read(reinterpret_cast<const Number*>(p)); }
};
using CachedFloats = Plain<float, load>;
using CachedHalves = Plain<uint16_t, load_half>;

// ---------------------------------------------------------------- queries times keys

struct KeyWalk {
  const uint8_t* const* vectors;  // where each vector begins
  const uint8_t* const* ahead;    // for each, what to fetch from memory meanwhile; may be null
  int64_t row_bytes, dims;
};

// sums[r][v] += queries[r] * key(v). There are registers for the sums and for few others: whichever
// are fewer, the keys or the queries' numbers, are held; the others are read, used, and forgotten.
template <int rows, int vectors, class Key>
inline void add_products(Floats (&sums)[rows][vectors], const float* queries, Key&& key) {
  if constexpr (rows < vectors) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      const Floats number = key(v);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) sums[r][v] = fma(Floats(queries[r]), number, sums[r][v]);
    }
  } else {
    Floats held[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) held[v] = key(v);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      const Floats query(queries[r]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) sums[r][v] = fma(query, held[v], sums[r][v]);
    }
  }
}

// scores[r][v * LANES ...] = queries[.][r] . keys.  queries: [dims][rows].
template <class Kind, int rows, int vectors>
void dot(const KeyWalk& keys, const float* queries, float* scores) {
  Floats sums[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[r][v] = Floats(0.0f);
  // a vector's share of a page is as long in bytes as it has dimensions
  constexpr int64_t step = LANES * Kind::BYTES;
  const bool is_fetching = keys.ahead != nullptr;
  const uint8_t* p[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) p[v] = keys.vectors[v];
  for (int64_t i = 0; i < keys.dims; i++, queries += rows) {
    if (is_fetching && i * step % 64 < step) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) __builtin_prefetch(keys.ahead[v] + i * step);
    }
    add_products<rows, vectors>(sums, queries, [&](int v) { return Kind::vector(p[v]); });
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) p[v] += keys.row_bytes;
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) store(scores + r * PIECE + v * LANES, sums[r][v]);
}

// ---------------------------------------------------------------- weights times values

struct ValueWalk {
  const uint8_t* const* vectors;  // where each vector of tokens begins
  const uint8_t* const* ahead;    // for each, what to fetch from memory meanwhile; may be null
  int64_t value_bytes;
  int64_t first, last;  // tokens, counted from the first of vectors[0]
};

// sums[r][...] += weights[r][token] * values[token], for `vectors` vectors of dimensions from
// `offset` bytes into a token on.
template <class Kind, int rows, int vectors>
void weigh(const ValueWalk& values, int64_t offset, const float* weights, float* out,
           int64_t out_stride) {
  Floats sums[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[r][v] = load(out + r * out_stride + v * LANES);
  const int64_t value_bytes = values.value_bytes;
  // whoever takes the first dimensions fetches for the others
  const bool is_fetching = values.ahead != nullptr && offset == 0;
  for (int64_t token = values.first; token < values.last;) {
    const int64_t vector = token / LANES, place = token % LANES;
    const int64_t count = std::min(LANES - place, values.last - token);
    const uint8_t* p = values.vectors[vector] + place * value_bytes + offset;
    const uint8_t* ahead = is_fetching ? values.ahead[vector] + place * value_bytes : nullptr;
    for (int64_t i = 0; i < count; i++, token++, p += value_bytes) {
      if (is_fetching)
        for (int64_t line = 0; line < value_bytes; line += 64)
          __builtin_prefetch(ahead + i * value_bytes + line);
      Floats value[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) value[v] = Kind::vector(p + v * LANES * Kind::BYTES);
#pragma GCC unroll 8
      for (int r = 0; r < rows; r++) {
        const Floats weight(weights[r * PIECE + token]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sums[r][v] = fma(weight, value[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) store(out + r * out_stride + v * LANES, sums[r][v]);
}

// ---------------------------------------------------------------- kernels of any size

// scores of vectors [first, last), for `rows` rows of queries.
template <class Kind>
void dot_all(const KeyWalk& keys, int64_t first, int64_t last, const float* queries, int64_t rows,
             float* scores) {
  with_constant<GROUP_ROWS>(rows, [&](auto count) {
    constexpr int R = decltype(count)::value;
    each_width<widest(R)>(first, last, [&](auto width, int64_t v) {
      const KeyWalk from{keys.vectors + v, keys.ahead == nullptr ? nullptr : keys.ahead + v,
                         keys.row_bytes, keys.dims};
      dot<Kind, R, decltype(width)::value>(from, queries, scores + v * LANES);
    });
  });
}

// Adds the values of all dimensions, for `rows` rows of weights.
template <class Kind>
void weigh_all(const ValueWalk& values, int64_t dims, const float* weights, int64_t rows,
               float* out, int64_t out_stride) {
  with_constant<GROUP_ROWS>(rows, [&](auto count) {
    constexpr int R = decltype(count)::value;
    each_width<widest(R)>(0, dims / LANES, [&](auto width, int64_t v) {
      weigh<Kind, R, decltype(width)::value>(values, v * LANES * Kind::BYTES, weights,
                                             out + v * LANES, out_stride);
    });
  });
}

}  // namespace octavo
