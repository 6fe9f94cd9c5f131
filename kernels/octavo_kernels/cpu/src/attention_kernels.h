// The inner loops of attention: queries times keys, weights times values.
//
// A vector of the cache is LANES neighbouring tokens. Every sum is one chain of fused
// multiply-adds in rising order of its dimension or token, however many rows and vectors a kernel
// works on at a time: a row's bits do not depend on what it is computed beside.
// Knows how numbers of a page become floats. Does not know positions, blocks or softmax.
#pragma once

#include <type_traits>

#include "kv_cache.h"

namespace octavo {

// Rows that a kernel works on at a time, at most.
constexpr int GROUP_ROWS = 6;
// Vectors that a kernel works on at a time: as many as there are registers for.
constexpr int widest(int rows) { return LANES == 8 && rows > 3 ? 2 : 4; }

// ---------------------------------------------------------------- how numbers become floats

// Numbers of `Number` bytes, one after the other; a vector of keys has the next dimension half a
// `pair_bytes` on.
template <class Number, Floats (*read)(const Number*)>
struct Plain {
  static constexpr int BITS = 8 * sizeof(Number);
  static Floats value(const uint8_t* p) { return read(reinterpret_cast<const Number*>(p)); }

  // dimensions 2i and 2i + 1 of LANES tokens
  struct KeyPair {
    const uint8_t* p;
    int64_t pair_bytes;
    Floats even() const { return value(p); }
    Floats odd() const { return value(p + pair_bytes / 2); }
  };
  static KeyPair keys(const uint8_t* p, int64_t pair_bytes) { return {p, pair_bytes}; }

  // LANES dimensions of one token, and the LANES after them
  static void values(const uint8_t* p, Floats& first, Floats& second) {
    first = value(p);
    second = value(p + sizeof(Number) * LANES);
  }
};

using CachedFloats = Plain<float, load>;
using CachedHalves = Plain<uint16_t, load_half>;
using CachedBytes = Plain<int8_t, load_bytes>;

struct CachedNibbles {
  static constexpr int BITS = 4;

  struct KeyPair {
    Floats low, high;
    Floats even() const { return low; }
    Floats odd() const { return high; }
  };
  static KeyPair keys(const uint8_t* p, int64_t) {
    KeyPair pair;
    load_nibbles(p, pair.low, pair.high);
    return pair;
  }
  static void values(const uint8_t* p, Floats& first, Floats& second) {
    load_nibbles(p, first, second);
  }
};

// ---------------------------------------------------------------- queries times keys

struct KeyWalk {
  const uint8_t* const* vectors;  // where each vector begins
  const uint8_t* const* ahead;    // for each, what to fetch from memory meanwhile; may be null
  int64_t pair_bytes, dims;
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
void dot(const KeyWalk& keys, const float* queries, float* scores, int64_t stride) {
  Floats sums[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[r][v] = Floats(0.0f);
  // a vector's share of a page is as long in bytes as it takes pairs of dimensions
  constexpr int64_t step = 2 * LANES * Kind::BITS / 8;
  const bool is_fetching = keys.ahead != nullptr;
  const uint8_t* p[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) p[v] = keys.vectors[v];
  for (int64_t i = 0; i < keys.dims / 2; i++, queries += 2 * rows) {
    if (is_fetching && i * step % 64 < step) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++)
        for (int64_t line = 0; line < step; line += 64)
          __builtin_prefetch(keys.ahead[v] + i * step + line);
    }
    typename Kind::KeyPair pairs[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      pairs[v] = Kind::keys(p[v], keys.pair_bytes);
      p[v] += keys.pair_bytes;
    }
    add_products<rows, vectors>(sums, queries, [&](int v) { return pairs[v].even(); });
    add_products<rows, vectors>(sums, queries + rows, [&](int v) { return pairs[v].odd(); });
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) store(scores + r * stride + v * LANES, sums[r][v]);
}

// ---------------------------------------------------------------- weights times values

struct ValueWalk {
  const uint8_t* const* vectors;  // where each vector of tokens begins
  const uint8_t* const* ahead;    // for each, what to fetch from memory meanwhile; may be null
  int64_t token_bytes;
  int64_t first, last;  // tokens, counted from the first of vectors[0]
};

// sums[r][...] += weights[r][token] * values[token], for `vectors` vectors of dimensions from
// `offset` bytes into a token on.
template <class Kind, int rows, int vectors>
void weigh(const ValueWalk& values, int64_t offset, const float* weights, int64_t weights_stride,
           float* out, int64_t out_stride) {
  Floats sums[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[r][v] = load(out + r * out_stride + v * LANES);
  const int64_t token_bytes = values.token_bytes;
  // whoever takes the first dimensions fetches for the others
  const bool is_fetching = values.ahead != nullptr && offset == 0;
  for (int64_t token = values.first; token < values.last;) {
    const int64_t vector = token / LANES, place = token % LANES;
    const int64_t count = std::min(LANES - place, values.last - token);
    const uint8_t* p = values.vectors[vector] + place * token_bytes + offset;
    const uint8_t* ahead = is_fetching ? values.ahead[vector] + place * token_bytes : nullptr;
    for (int64_t i = 0; i < count; i++, token++, p += token_bytes) {
      if (is_fetching)
        for (int64_t line = 0; line < token_bytes; line += 64)
          __builtin_prefetch(ahead + i * token_bytes + line);
      Floats value[vectors];
      if constexpr (vectors == 1) {
        value[0] = Kind::value(p);
      } else {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v += 2)
          Kind::values(p + v * LANES * Kind::BITS / 8, value[v], value[v + 1]);
      }
#pragma GCC unroll 8
      for (int r = 0; r < rows; r++) {
        const Floats weight(weights[r * weights_stride + token]);
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

// Calls work(std::integral_constant<int, n>) for a number that is known when the code runs.
template <int most, class Work>
void with_constant(int64_t n, Work&& work) {
  if constexpr (most > 1) {
    if (n < most) return with_constant<most - 1>(n, work);
  }
  work(std::integral_constant<int, most>());
}

// scores of vectors [first, last), for `rows` rows of queries.
template <class Kind>
void dot_all(KeyWalk keys, int64_t first, int64_t last, const float* queries, int64_t rows,
             float* scores, int64_t stride) {
  with_constant<GROUP_ROWS>(rows, [&](auto count) {
    constexpr int R = decltype(count)::value;
    keys.vectors += first;
    if (keys.ahead != nullptr) keys.ahead += first;
    for (int64_t v = first; v < last;) {
      const int64_t left = last - v;
      const auto step = [&](auto width) {
        dot<Kind, R, decltype(width)::value>(keys, queries, scores + v * LANES, stride);
        v += decltype(width)::value;
        keys.vectors += decltype(width)::value;
        if (keys.ahead != nullptr) keys.ahead += decltype(width)::value;
      };
      if (widest(R) == 4 && left >= 4)
        step(std::integral_constant<int, widest(R)>());
      else if (left >= 2)
        step(std::integral_constant<int, 2>());
      else
        step(std::integral_constant<int, 1>());
    }
  });
}

// Adds the values of all dimensions, for `rows` rows of weights.
template <class Kind>
void weigh_all(const ValueWalk& values, int64_t dims, const float* weights, int64_t weights_stride,
               int64_t rows, float* out, int64_t out_stride) {
  with_constant<GROUP_ROWS>(rows, [&](auto count) {
    constexpr int R = decltype(count)::value;
    for (int64_t dim = 0; dim < dims;) {
      const int64_t left = (dims - dim) / LANES;
      const auto step = [&](auto width) {
        weigh<Kind, R, decltype(width)::value>(values, dim * Kind::BITS / 8, weights,
                                               weights_stride, out + dim, out_stride);
        dim += decltype(width)::value * LANES;
      };
      if (widest(R) == 4 && left >= 4)
        step(std::integral_constant<int, widest(R)>());
      else if (Kind::BITS == 4 || left >= 2)
        step(std::integral_constant<int, 2>());
      else if constexpr (Kind::BITS > 4)
        step(std::integral_constant<int, 1>());
    }
  });
}

}  // namespace octavo
