// The products of attention_codes.h on AMX, for STACK_ROWS rows at a time: the same integers.
//
// Weights of 15 bits are two bytes here, and their products two sums. Keys are read as they lie in
// the cache; values are put in another order once for all rows, which pays where rows are many.
// Knows codes. Does not know positions or softmax.
#pragma once

#include "attention_codes.h"
#include "tiles.h"

#if defined(OCTAVO_HAS_TILES)

namespace octavo {

// Bytes of a row of a tile: so many dimensions of queries, and so many tokens of weights.
constexpr int64_t TILE_BYTES = 64;

// The shape of all tiles.
inline TileShape whole_tile(int) { return {STACK_ROWS, TILE_BYTES}; }

// Adds the products of 64 dimensions and tile `v` of keys to tile `v` of sums; tile 4 holds the
// queries.
template <int v>
inline void add_keys(const CodedKeys& keys, int64_t first, int64_t row) {
  load_tile<5 + v % 3>(keys.vectors[first + v] + row, keys.row_bytes);
  multiply_signed_unsigned<v, 4, 5 + v % 3>();
}

template <int... v>
inline void dot_on_tiles(const CodedKeys& keys, int64_t first, const int8_t* queries,
                         int32_t* products, std::integer_sequence<int, v...>) {
  (clear_tile<v>(), ...);
  for (int64_t dim = 0; dim < keys.dims; dim += TILE_BYTES) {
    load_tile<4>(queries + dim, keys.dims);
    (add_keys<v>(keys, first, dim / 4 * keys.row_bytes), ...);
  }
  (store_tile<v>(products + (first + v) * LANES, PIECE * 4), ...);
}

// products[r][v * LANES ...] = queries[r] . keys, WEIGHT_BIAS included, for vectors [first, last).
// queries: [STACK_ROWS][dims]; products: [STACK_ROWS][PIECE].
inline void dot_all_on_tiles(const CodedKeys& keys, int64_t first, int64_t last,
                             const int8_t* queries, int32_t* products) {
  each_width<4>(first, last, [&](auto width, int64_t v) {
    dot_on_tiles(keys, v, queries, products,
                 std::make_integer_sequence<int, decltype(width)::value>());
  });
}

// Products become scores, as `dot_codes` has them.
inline void scale_products(const CodedKeys& keys, int64_t first, int64_t last, float query_scale,
                           int32_t query_sum, float* scores) {
  const Ints bias(WEIGHT_BIAS * query_sum);
  const Floats factor(query_scale);
  for (int64_t i = first * LANES; i < last * LANES; i += LANES) {
    const Ints product(_mm512_loadu_si512(scores + i));
    store(scores + i, to_floats(product - bias) * (factor * load(keys.scales + i)));
  }
}

// A row's weights, one after the other.
struct WideWeights {
  int32_t* of;

  void put(int64_t i, Ints weights) const { _mm512_storeu_si512(of + i, weights.v); }
  // not by `int32_t`s: what was there are floats
  void clear(int64_t first, int64_t last) const {
    if (first < last) std::memset(of + first, 0, size_t(last - first) * sizeof(*of));
  }
};

// The high and the low byte of weights of some rows: [STACK_ROWS][PIECE] each.
struct SplitWeights {
  uint8_t *high, *low;

  // Splits weights [first, last) of a row, whole tiles.
  void split(int64_t row, const WideWeights& weights, int64_t first, int64_t last) const {
    for (int64_t i = first; i < last; i += TILE_BYTES) {
      Ints four[4];
      for (int v = 0; v < 4; v++) four[v] = Ints(_mm512_loadu_si512(weights.of + i + v * LANES));
      put(row, i, four);
    }
  }

  // Puts four vectors of weights of a row, from token i on.
  void put(int64_t row, int64_t i, const Ints* four) const {
    // packing takes four lanes of each vector in turns
    const __m512i order =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i low_byte = _mm512_set1_epi16(255);
    const __m512i one = _mm512_packus_epi32(four[0].v, four[1].v);
    const __m512i other = _mm512_packus_epi32(four[2].v, four[3].v);
    const __m512i highs =
        _mm512_packus_epi16(_mm512_srli_epi16(one, 8), _mm512_srli_epi16(other, 8));
    const __m512i lows = _mm512_packus_epi16(_mm512_and_si512(one, low_byte),
                                             _mm512_and_si512(other, low_byte));
    _mm512_storeu_si512(high + row * PIECE + i, _mm512_permutexvar_epi32(order, highs));
    _mm512_storeu_si512(low + row * PIECE + i, _mm512_permutexvar_epi32(order, lows));
  }
};

// Two tokens of 32 dimensions, as 16 bits each dimension.
template <class Kind>
inline __m512i load_two_tokens(const uint8_t* p) {
  if constexpr (Kind::BITS == 8) return _mm512_loadu_si512(p);
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i low = _mm256_and_si256(bytes, mask);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Puts the values of vectors [first, last) of a piece in the order of tiles: [tokens / 4][dims][4].
template <class Kind>
void order_values(const CodedValues& values, int64_t dims, int8_t* out) {
  alignas(64) uint16_t places[2][32];
  for (uint16_t i = 0; i < 32; i++) {
    places[0][i] = uint16_t(i / 2 + i % 2 * 32);
    places[1][i] = uint16_t(16 + i / 2 + i % 2 * 32);
  }
  const __m512i first_half = _mm512_load_si512(places[0]);
  const __m512i second_half = _mm512_load_si512(places[1]);
  const int64_t pair_bytes = 2 * values.value_bytes, step = 64 * Kind::BITS / 8;
  for (int64_t v = values.first; v < values.last; v++) {
    const uint8_t* p = values.vectors[v];
    int8_t* to = out + v * LANES * dims;
    for (int64_t token = 0; token < LANES; token += 4, p += 2 * pair_bytes)
      for (int64_t i = 0; i < dims / 32; i++, to += 128) {
        const __m512i one = load_two_tokens<Kind>(p + i * step);
        const __m512i other = load_two_tokens<Kind>(p + pair_bytes + i * step);
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(one, first_half, other));
        _mm512_storeu_si512(to + 64, _mm512_permutex2var_epi16(one, second_half, other));
      }
  }
}

// As `weigh_codes`, of values in the order of tiles, for the first `rows` of a stack.
// weights: [STACK_ROWS][PIECE], 0 but in tokens [first, last), which are whole tiles.
inline void weigh_on_tiles(const int8_t* values, int64_t dims, const SplitWeights& weights,
                           int64_t first, int64_t last, const WeightScale* scales, int64_t rows,
                           float* out, int64_t stride) {
  alignas(64) int32_t sums[4][STACK_ROWS][LANES];
  for (int64_t dim = 0; dim < dims; dim += 2 * LANES) {
    clear_tile<0>();
    clear_tile<1>();
    clear_tile<2>();
    clear_tile<3>();
    for (int64_t token = first; token < last; token += TILE_BYTES) {
      const int8_t* p = values + token * dims + dim * 4;
      load_tile<4>(weights.high + token, PIECE);
      load_tile<5>(weights.low + token, PIECE);
      load_tile<6>(p, 4 * dims);
      load_tile<7>(p + 4 * LANES, 4 * dims);
      multiply_unsigned_signed<0, 4, 6>();
      multiply_unsigned_signed<1, 5, 6>();
      multiply_unsigned_signed<2, 4, 7>();
      multiply_unsigned_signed<3, 5, 7>();
    }
    store_tile<0>(sums[0], 4 * LANES);
    store_tile<1>(sums[1], 4 * LANES);
    store_tile<2>(sums[2], 4 * LANES);
    store_tile<3>(sums[3], 4 * LANES);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t half = 0; half < 2; half++) {
        const Ints high(_mm512_load_si512(sums[2 * half][r]));
        const Ints total = shift_left(high, 8) + Ints(_mm512_load_si512(sums[2 * half + 1][r]));
        store(out + r * stride + dim + half * LANES,
              fma(to_floats(total), Floats(scales[r].unit), Floats(scales[r].common)));
      }
  }
}

}  // namespace octavo

#endif
