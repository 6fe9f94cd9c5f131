// Sixteen lanes: AVX-512 with VNNI.
#pragma once

#include <immintrin.h>

namespace octavo {

constexpr int LANES = 16;

struct Floats {
  __m512 v;
  Floats() = default;
  Floats(__m512 v) : v(v) {}
  explicit Floats(float x) : v(_mm512_set1_ps(x)) {}
};

inline Floats load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Floats x) { _mm512_storeu_ps(p, x.v); }
// The first n lanes, the others 0; n may be anything from 0 on.
inline __mmask16 first_lanes(int64_t n) {
  return n >= LANES ? __mmask16(0xFFFF) : __mmask16((1u << (n < 0 ? 0 : n)) - 1);
}
inline Floats load_first(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
inline void store_first(float* p, Floats x, int64_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), x.v);
}
inline Floats operator+(Floats a, Floats b) { return _mm512_add_ps(a.v, b.v); }
inline Floats operator-(Floats a, Floats b) { return _mm512_sub_ps(a.v, b.v); }
inline Floats operator*(Floats a, Floats b) { return _mm512_mul_ps(a.v, b.v); }
inline Floats operator/(Floats a, Floats b) { return _mm512_div_ps(a.v, b.v); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a.v, b.v, c.v); }
// min and max give the second where either is NaN.
inline Floats min(Floats a, Floats b) { return _mm512_min_ps(a.v, b.v); }
inline Floats max(Floats a, Floats b) { return _mm512_max_ps(a.v, b.v); }
inline Floats abs(Floats a) { return _mm512_abs_ps(a.v); }
inline Floats round(Floats a) {
  return _mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Floats copy_sign(Floats size, Floats sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return _mm512_or_ps(_mm512_andnot_ps(bit, size.v), _mm512_and_ps(bit, sign.v));
}
// x * 2^power, for a power that is whole and leaves a normal number
inline Floats scale_by_power(Floats x, Floats power) { return _mm512_scalef_ps(x.v, power.v); }
// 0 in lanes where `x` is below `bound`, `value` elsewhere
inline Floats zero_below(Floats value, Floats x, float bound) {
  const __mmask16 is_below = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_LT_OQ);
  return _mm512_mask_mov_ps(value.v, is_below, _mm512_setzero_ps());
}
// one bit for each lane, set where a >= b
inline uint32_t at_least(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ);
}
inline float sum(Floats a) { return _mm512_reduce_add_ps(a.v); }
inline float largest(Floats a) { return _mm512_reduce_max_ps(a.v); }

// the lane `stride` away, within pairs of lanes that far apart
template <int stride>
inline Floats swap_lanes(Floats a) {
  if constexpr (stride == 1) return _mm512_permute_ps(a.v, 0xB1);
  if constexpr (stride == 2) return _mm512_permute_ps(a.v, 0x4E);
  if constexpr (stride == 4) return _mm512_shuffle_f32x4(a.v, a.v, 0xB1);
  if constexpr (stride == 8) return _mm512_shuffle_f32x4(a.v, a.v, 0x4E);
}

inline Floats load_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void store_half(uint16_t* p, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Floats load_bfloat16(const uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
inline Floats load_bytes(const int8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Floats load_bytes(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// Four bytes for each lane.
struct Bytes {
  __m512i v;
  Bytes() = default;
  Bytes(__m512i v) : v(v) {}
};
inline Bytes load_packed(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline Bytes low_nibbles(Bytes x) { return _mm512_and_si512(x.v, _mm512_set1_epi8(15)); }
inline Bytes high_nibbles(Bytes x) {
  return _mm512_and_si512(_mm512_srli_epi16(x.v, 4), _mm512_set1_epi8(15));
}

// 32-bit sums, one for each lane.
struct Ints {
  __m512i v;
  Ints() = default;
  Ints(__m512i v) : v(v) {}
  explicit Ints(int32_t x) : v(_mm512_set1_epi32(x)) {}
};
inline Ints operator+(Ints a, Ints b) { return _mm512_add_epi32(a.v, b.v); }
inline Ints operator-(Ints a, Ints b) { return _mm512_sub_epi32(a.v, b.v); }
inline Ints shift_left(Ints a, int bits) { return _mm512_slli_epi32(a.v, bits); }
inline Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a.v); }
// the bits of numbers, and back
inline Ints bits_of(Floats a) { return _mm512_castps_si512(a.v); }
inline Floats from_bits(Ints a) { return _mm512_castsi512_ps(a.v); }
// to the nearest, ties to even
inline Ints to_ints(Floats a) { return _mm512_cvtps_epi32(a.v); }
inline int32_t sum(Ints a) { return _mm512_reduce_add_epi32(a.v); }
// the lanes as signed bytes, saturated
inline void store_bytes(int8_t* p, Ints a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(a.v));
}

// the lanes as 16 bits, saturated
inline void store_shorts(int16_t* p, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtsepi32_epi16(a.v));
}

// Two numbers of 16 bits for each lane.
struct Pairs {
  __m512i v;
};
inline Pairs load_pairs(const int8_t* p) {
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
// of each byte the low four bits, and the high ones
inline void load_nibble_pairs(const uint8_t* p, Pairs& low, Pairs& high) {
  const __m512i bytes =
      _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  low.v = _mm512_and_si512(bytes, _mm512_set1_epi16(15));
  high.v = _mm512_srli_epi16(bytes, 4);
}
// sum + a pair's first number * weights[0] + its second * weights[1]
inline Ints add_products(Ints sum, Pairs a, const int16_t* weights) {
  int32_t two;
  std::memcpy(&two, weights, 4);
  sum.v = _mm512_dpwssd_epi32(sum.v, a.v, _mm512_set1_epi32(two));
  // keeps the compiler from summing in another order, for which it spills all the sums
  asm("" : "+v"(sum.v));
  return sum;
}

inline Bytes join(Bytes a, Bytes b) { return _mm512_or_si512(a.v, b.v); }
// bit `bit` of each byte, moved to bit 4
inline Bytes fifth_bits(Bytes x, int bit) {
  const __m512i moved = bit <= 4 ? _mm512_slli_epi16(x.v, 4 - bit) : _mm512_srli_epi16(x.v, bit - 4);
  return _mm512_and_si512(moved, _mm512_set1_epi8(0x10));
}
// bits `bit` and `bit` + 1 of each byte, moved to bits 4 and 5
inline Bytes top_bits(Bytes x, int bit) {
  const __m512i moved = bit <= 4 ? _mm512_slli_epi16(x.v, 4 - bit) : _mm512_srli_epi16(x.v, bit - 4);
  return _mm512_and_si512(moved, _mm512_set1_epi8(0x30));
}
// each byte, below 16, replaced by that entry of a table
inline Bytes look_up(Bytes x, const uint8_t* table) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), x.v);
}

// byte number `place` of each lane
template <int place, bool is_signed>
inline Floats byte_of(Bytes x) {
  if (is_signed)
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(x.v, 24 - 8 * place), 24));
  const __m512i low = _mm512_set1_epi32(255);
  return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(x.v, 8 * place), low));
}

// What is added to a signed weight so that `dot` takes it.
constexpr int WEIGHT_BIAS = 128;

// Sums products of weights and activations: lane i sums over its own bytes.
template <int bits>
class Products {
 public:
  // Adds vector j of unsigned weights below 2^bits, each with the four activations that are its.
  void add(Bytes weights, const int8_t* activations, int) {
    int32_t four;
    std::memcpy(&four, activations, 4);
    sum_ = _mm512_dpbusd_epi32(sum_, weights.v, _mm512_set1_epi32(four));
  }
  Ints total() const { return sum_; }

 private:
  __m512i sum_ = _mm512_setzero_si512();
};

}  // namespace octavo
