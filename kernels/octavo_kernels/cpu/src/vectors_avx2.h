// Eight lanes: AVX2 with FMA and F16C.
#pragma once

#include <immintrin.h>

namespace octavo {

constexpr int LANES = 8;

struct Floats {
  __m256 v;
  Floats() = default;
  Floats(__m256 v) : v(v) {}
  explicit Floats(float x) : v(_mm256_set1_ps(x)) {}
};

inline Floats load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Floats x) { _mm256_storeu_ps(p, x.v); }
// The first n lanes, the others 0; n may be anything from 0 on.
inline __m256i first_lanes(int64_t n) {
  const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(n > LANES ? LANES : n)), places);
}
inline Floats load_first(const float* p, int64_t n) {
  return _mm256_maskload_ps(p, first_lanes(n));
}
inline void store_first(float* p, Floats x, int64_t n) {
  _mm256_maskstore_ps(p, first_lanes(n), x.v);
}
inline Floats operator+(Floats a, Floats b) { return _mm256_add_ps(a.v, b.v); }
inline Floats operator-(Floats a, Floats b) { return _mm256_sub_ps(a.v, b.v); }
inline Floats operator*(Floats a, Floats b) { return _mm256_mul_ps(a.v, b.v); }
inline Floats operator/(Floats a, Floats b) { return _mm256_div_ps(a.v, b.v); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a.v, b.v, c.v); }
// min and max give the second where either is NaN.
inline Floats min(Floats a, Floats b) { return _mm256_min_ps(a.v, b.v); }
inline Floats max(Floats a, Floats b) { return _mm256_max_ps(a.v, b.v); }
inline Floats abs(Floats a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v); }
inline Floats round(Floats a) {
  return _mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Floats copy_sign(Floats size, Floats sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return _mm256_or_ps(_mm256_andnot_ps(bit, size.v), _mm256_and_ps(bit, sign.v));
}
// x * 2^power, for a power that is whole and leaves a normal number
inline Floats scale_by_power(Floats x, Floats power) {
  // in two halves: 2^128 is no float, though x * 2^128 may be one
  const __m256i whole = _mm256_cvtps_epi32(power.v);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const __m256 second = _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(x.v, first), second);
}
// 0 in lanes where `x` is below `bound`, `value` elsewhere
inline Floats zero_below(Floats value, Floats x, float bound) {
  return _mm256_andnot_ps(_mm256_cmp_ps(x.v, _mm256_set1_ps(bound), _CMP_LT_OQ), value.v);
}
// one bit for each lane, set where a >= b
inline uint32_t at_least(Floats a, Floats b) {
  return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)));
}
inline float sum(Floats a) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}
inline float largest(Floats a) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}

// the lane `stride` away, within pairs of lanes that far apart
template <int stride>
inline Floats swap_lanes(Floats a) {
  if constexpr (stride == 1) return _mm256_permute_ps(a.v, 0xB1);
  if constexpr (stride == 2) return _mm256_permute_ps(a.v, 0x4E);
  if constexpr (stride == 4) return _mm256_permute2f128_ps(a.v, a.v, 1);
}

inline Floats load_half(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void store_half(uint16_t* p, Floats x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Floats load_bfloat16(const uint16_t* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
inline Floats load_bytes(const int8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Floats load_bytes(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

// Four bytes for each lane.
struct Bytes {
  __m256i v;
  Bytes() = default;
  Bytes(__m256i v) : v(v) {}
};
inline Bytes load_packed(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline Bytes low_nibbles(Bytes x) { return _mm256_and_si256(x.v, _mm256_set1_epi8(15)); }
inline Bytes high_nibbles(Bytes x) {
  return _mm256_and_si256(_mm256_srli_epi16(x.v, 4), _mm256_set1_epi8(15));
}

// 32-bit sums, one for each lane.
struct Ints {
  __m256i v;
  Ints() = default;
  Ints(__m256i v) : v(v) {}
  explicit Ints(int32_t x) : v(_mm256_set1_epi32(x)) {}
};
inline Ints operator+(Ints a, Ints b) { return _mm256_add_epi32(a.v, b.v); }
inline Ints operator-(Ints a, Ints b) { return _mm256_sub_epi32(a.v, b.v); }
inline Ints shift_left(Ints a, int bits) { return _mm256_slli_epi32(a.v, bits); }
inline Floats to_floats(Ints a) { return _mm256_cvtepi32_ps(a.v); }
// the bits of numbers, and back
inline Ints bits_of(Floats a) { return _mm256_castps_si256(a.v); }
inline Floats from_bits(Ints a) { return _mm256_castsi256_ps(a.v); }
// to the nearest, ties to even
inline Ints to_ints(Floats a) { return _mm256_cvtps_epi32(a.v); }
inline int32_t sum(Ints a) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xB1)));
}
// the lanes as signed bytes, saturated
inline void store_bytes(int8_t* p, Ints a) {
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}

// the lanes as 16 bits, saturated
inline void store_shorts(int16_t* p, Ints a) {
  const __m128i shorts =
      _mm_packs_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), shorts);
}

// Two numbers of 16 bits for each lane.
struct Pairs {
  __m256i v;
};
inline Pairs load_pairs(const int8_t* p) {
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
// of each byte the low four bits, and the high ones
inline void load_nibble_pairs(const uint8_t* p, Pairs& low, Pairs& high) {
  const __m256i bytes =
      _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  low.v = _mm256_and_si256(bytes, _mm256_set1_epi16(15));
  high.v = _mm256_srli_epi16(bytes, 4);
}
// sum + a pair's first number * weights[0] + its second * weights[1]
inline Ints add_products(Ints sum, Pairs a, const int16_t* weights) {
  int32_t two;
  std::memcpy(&two, weights, 4);
  sum.v = _mm256_add_epi32(sum.v, _mm256_madd_epi16(a.v, _mm256_set1_epi32(two)));
  // keeps the compiler from summing in another order, for which it spills all the sums
  asm("" : "+x"(sum.v));
  return sum;
}

inline Bytes join(Bytes a, Bytes b) { return _mm256_or_si256(a.v, b.v); }
// bit `bit` of each byte, moved to bit 4
inline Bytes fifth_bits(Bytes x, int bit) {
  const __m256i moved = bit <= 4 ? _mm256_slli_epi16(x.v, 4 - bit) : _mm256_srli_epi16(x.v, bit - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(0x10));
}
// bits `bit` and `bit` + 1 of each byte, moved to bits 4 and 5
inline Bytes top_bits(Bytes x, int bit) {
  const __m256i moved = bit <= 4 ? _mm256_slli_epi16(x.v, 4 - bit) : _mm256_srli_epi16(x.v, bit - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(0x30));
}
// each byte, below 16, replaced by that entry of a table
inline Bytes look_up(Bytes x, const uint8_t* table) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), x.v);
}

// byte number `place` of each lane
template <int place, bool is_signed>
inline Floats byte_of(Bytes x) {
  if (is_signed)
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(x.v, 24 - 8 * place), 24));
  const __m256i low = _mm256_set1_epi32(255);
  return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(x.v, 8 * place), low));
}

// What is added to a signed weight so that `dot` takes it: nothing, signs are moved over instead.
constexpr int WEIGHT_BIAS = 0;

// Sums products of weights and activations: lane i sums over its own bytes. Products are summed in
// 16 bits for as long as they cannot overflow.
template <int bits>
class Products {
 public:
  // Adds vector j = 0, 1, ... of unsigned weights below 2^bits (8 bits: signed weights), each with
  // the four activations that are its.
  void add(Bytes weights, const int8_t* activations, int j) {
    int32_t four;
    std::memcpy(&four, activations, 4);
    const __m256i signs = _mm256_set1_epi32(four);
    const __m256i product =
        bits < 8 ? _mm256_maddubs_epi16(weights.v, signs)
                 : _mm256_maddubs_epi16(_mm256_abs_epi8(weights.v),
                                        _mm256_sign_epi8(signs, weights.v));
    if (j % IN_A_ROW == 0) {
      if (j > 0) widen(j == IN_A_ROW);
      short_sum_ = product;
    } else {
      short_sum_ = _mm256_add_epi16(short_sum_, product);
    }
    // keeps the compiler from summing in another order, for which it spills all the products
    asm("" : "+x"(short_sum_));
    is_first_ = j < IN_A_ROW;
  }
  Ints total() {
    widen(is_first_);
    return sum_;
  }

 private:
  // two products of 127 and the largest weight, so many times, stay below 2^15
  static constexpr int IN_A_ROW = bits <= 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;

  void widen(bool is_first) {
    const __m256i wide = _mm256_madd_epi16(short_sum_, _mm256_set1_epi16(1));
    sum_ = is_first ? wide : _mm256_add_epi32(sum_, wide);
  }

  __m256i short_sum_, sum_;
  bool is_first_;
};

}  // namespace octavo
