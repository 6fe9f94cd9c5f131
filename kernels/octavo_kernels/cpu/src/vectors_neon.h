// Eight lanes: two registers of NEON, on 64-bit Arm.
//
// As many as AVX2 has, so that weights and caches lie in memory as they do there, and every sum is
// made in the same order: both give the same bits.
#pragma once

#include <arm_neon.h>

namespace octavo {

constexpr int LANES = 8;

struct Floats {
  float32x4_t low, high;
  Floats() = default;
  Floats(float32x4_t low, float32x4_t high) : low(low), high(high) {}
  explicit Floats(float x) : low(vdupq_n_f32(x)), high(low) {}
};

inline Floats load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
inline void store(float* p, Floats x) {
  vst1q_f32(p, x.low);
  vst1q_f32(p + 4, x.high);
}
// The first n lanes, the others 0; n may be anything from 0 on.
inline Floats load_first(const float* p, int64_t n) {
  if (n >= LANES) return load(p);
  float lanes[LANES] = {};
  for (int64_t i = 0; i < n; i++) lanes[i] = p[i];
  return load(lanes);
}
inline void store_first(float* p, Floats x, int64_t n) {
  if (n >= LANES) return store(p, x);
  float lanes[LANES];
  store(lanes, x);
  for (int64_t i = 0; i < n; i++) p[i] = lanes[i];
}
inline Floats operator+(Floats a, Floats b) {
  return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)};
}
inline Floats operator-(Floats a, Floats b) {
  return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)};
}
inline Floats operator*(Floats a, Floats b) {
  return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)};
}
inline Floats operator/(Floats a, Floats b) {
  return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)};
}
inline Floats fma(Floats a, Floats b, Floats c) {
  return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
// min and max give the second where either is NaN: the instructions of these names would give NaN.
inline float32x4_t min(float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline float32x4_t max(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline Floats min(Floats a, Floats b) { return {min(a.low, b.low), min(a.high, b.high)}; }
inline Floats max(Floats a, Floats b) { return {max(a.low, b.low), max(a.high, b.high)}; }
inline Floats abs(Floats a) { return {vabsq_f32(a.low), vabsq_f32(a.high)}; }
inline Floats round(Floats a) { return {vrndnq_f32(a.low), vrndnq_f32(a.high)}; }
inline Floats copy_sign(Floats size, Floats sign) {
  const uint32x4_t bit = vdupq_n_u32(1u << 31);
  return {vbslq_f32(bit, sign.low, size.low), vbslq_f32(bit, sign.high, size.high)};
}
inline float32x4_t scale_by_power(float32x4_t x, float32x4_t power) {
  // in two halves: 2^128 is no float, though x * 2^128 may be one
  const int32x4_t whole = vcvtnq_s32_f32(power), half = vshrq_n_s32(whole, 1);
  const int32x4_t bias = vdupq_n_s32(127);
  const int32x4_t first = vshlq_n_s32(vaddq_s32(half, bias), 23);
  const int32x4_t second = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
  return vmulq_f32(vmulq_f32(x, vreinterpretq_f32_s32(first)), vreinterpretq_f32_s32(second));
}
// x * 2^power, for a power that is whole and leaves a normal number
inline Floats scale_by_power(Floats x, Floats power) {
  return {scale_by_power(x.low, power.low), scale_by_power(x.high, power.high)};
}
inline float32x4_t zero_below(float32x4_t value, float32x4_t x, float32x4_t bound) {
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(value), vcltq_f32(x, bound)));
}
// 0 in lanes where `x` is below `bound`, `value` elsewhere
inline Floats zero_below(Floats value, Floats x, float bound) {
  const float32x4_t bounds = vdupq_n_f32(bound);
  return {zero_below(value.low, x.low, bounds), zero_below(value.high, x.high, bounds)};
}
// one bit for each lane, set where a >= b
inline uint32_t at_least(Floats a, Floats b) {
  constexpr uint32_t bits[LANES] = {1, 2, 4, 8, 16, 32, 64, 128};
  const uint32x4_t low = vandq_u32(vcgeq_f32(a.low, b.low), vld1q_u32(bits));
  const uint32x4_t high = vandq_u32(vcgeq_f32(a.high, b.high), vld1q_u32(bits + 4));
  return vaddvq_u32(vorrq_u32(low, high));
}
inline float sum(Floats a) {
  const float32x4_t four = vaddq_f32(a.low, a.high);
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline float largest(Floats a) {
  const float32x4_t four = max(a.low, a.high);
  const float32x4_t two = max(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(max(two, vextq_f32(two, two, 1)), 0);
}

// the lane `stride` away, within pairs of lanes that far apart
template <int stride>
inline Floats swap_lanes(Floats a) {
  if constexpr (stride == 1) return {vrev64q_f32(a.low), vrev64q_f32(a.high)};
  if constexpr (stride == 2)
    return {vextq_f32(a.low, a.low, 2), vextq_f32(a.high, a.high, 2)};
  if constexpr (stride == 4) return {a.high, a.low};
}

inline Floats load_half(const uint16_t* p) {
  const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(p));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}
inline void store_half(uint16_t* p, Floats x) {
  const float16x8_t halves = vcvt_high_f16_f32(vcvt_f16_f32(x.low), x.high);
  vst1q_u16(p, vreinterpretq_u16_f16(halves));
}
inline Floats load_bfloat16(const uint16_t* p) {
  const uint16x8_t halves = vld1q_u16(p);
  return {vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_low_u16(halves)), 16)),
          vreinterpretq_f32_u32(vshlq_n_u32(vmovl_high_u16(halves), 16))};
}
inline Floats to_floats(int16x8_t a) {
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(a))), vcvtq_f32_s32(vmovl_high_s16(a))};
}
inline Floats to_floats(uint8x8_t a) { return to_floats(vreinterpretq_s16_u16(vmovl_u8(a))); }
inline Floats load_bytes(const int8_t* p) { return to_floats(vmovl_s8(vld1_s8(p))); }
inline Floats load_bytes(const uint8_t* p) { return to_floats(vld1_u8(p)); }

// Four bytes for each lane.
struct Bytes {
  uint8x16_t low, high;
};
inline Bytes load_packed(const uint8_t* p) { return {vld1q_u8(p), vld1q_u8(p + 16)}; }
inline Bytes low_nibbles(Bytes x) {
  const uint8x16_t mask = vdupq_n_u8(15);
  return {vandq_u8(x.low, mask), vandq_u8(x.high, mask)};
}
inline Bytes high_nibbles(Bytes x) { return {vshrq_n_u8(x.low, 4), vshrq_n_u8(x.high, 4)}; }

// 32-bit sums, one for each lane.
struct Ints {
  int32x4_t low, high;
  Ints() = default;
  Ints(int32x4_t low, int32x4_t high) : low(low), high(high) {}
  explicit Ints(int32_t x) : low(vdupq_n_s32(x)), high(low) {}
};
inline Ints operator+(Ints a, Ints b) {
  return {vaddq_s32(a.low, b.low), vaddq_s32(a.high, b.high)};
}
inline Ints operator-(Ints a, Ints b) {
  return {vsubq_s32(a.low, b.low), vsubq_s32(a.high, b.high)};
}
inline Ints shift_left(Ints a, int bits) {
  const int32x4_t by = vdupq_n_s32(bits);
  return {vshlq_s32(a.low, by), vshlq_s32(a.high, by)};
}
inline Floats to_floats(Ints a) { return {vcvtq_f32_s32(a.low), vcvtq_f32_s32(a.high)}; }
// the bits of numbers, and back
inline Ints bits_of(Floats a) {
  return {vreinterpretq_s32_f32(a.low), vreinterpretq_s32_f32(a.high)};
}
inline Floats from_bits(Ints a) {
  return {vreinterpretq_f32_s32(a.low), vreinterpretq_f32_s32(a.high)};
}
// to the nearest, ties to even
inline Ints to_ints(Floats a) { return {vcvtnq_s32_f32(a.low), vcvtnq_s32_f32(a.high)}; }
inline int32_t sum(Ints a) { return vaddvq_s32(vaddq_s32(a.low, a.high)); }
inline int16x8_t to_shorts(Ints a) { return vqmovn_high_s32(vqmovn_s32(a.low), a.high); }
// the lanes as signed bytes, saturated
inline void store_bytes(int8_t* p, Ints a) { vst1_s8(p, vqmovn_s16(to_shorts(a))); }

// the lanes as 16 bits, saturated
inline void store_shorts(int16_t* p, Ints a) { vst1q_s16(p, to_shorts(a)); }

// Two numbers of 16 bits for each lane.
struct Pairs {
  int16x8_t first, second;
};
inline Pairs load_pairs(const int8_t* p) {
  const int8x8x2_t bytes = vld2_s8(p);
  return {vmovl_s8(bytes.val[0]), vmovl_s8(bytes.val[1])};
}
inline int16x8_t widen(uint8x8_t bytes) { return vreinterpretq_s16_u16(vmovl_u8(bytes)); }
// of each byte the low four bits, and the high ones
inline void load_nibble_pairs(const uint8_t* p, Pairs& low, Pairs& high) {
  const uint8x8x2_t bytes = vld2_u8(p);
  const uint8x8_t mask = vdup_n_u8(15);
  low = {widen(vand_u8(bytes.val[0], mask)), widen(vand_u8(bytes.val[1], mask))};
  high = {widen(vshr_n_u8(bytes.val[0], 4)), widen(vshr_n_u8(bytes.val[1], 4))};
}
// sum + a pair's first number * weights[0] + its second * weights[1]
inline Ints add_products(Ints sum, Pairs a, const int16_t* weights) {
  const int16x8_t first = vdupq_n_s16(weights[0]), second = vdupq_n_s16(weights[1]);
  sum.low = vmlal_s16(sum.low, vget_low_s16(a.first), vget_low_s16(first));
  sum.high = vmlal_high_s16(sum.high, a.first, first);
  sum.low = vmlal_s16(sum.low, vget_low_s16(a.second), vget_low_s16(second));
  sum.high = vmlal_high_s16(sum.high, a.second, second);
  return sum;
}

inline Bytes join(Bytes a, Bytes b) { return {vorrq_u8(a.low, b.low), vorrq_u8(a.high, b.high)}; }
// bits of each byte, moved to the left by `by`, or to the right where it is negative
inline Bytes moved_bits(Bytes x, int by, uint8_t mask) {
  const int8x16_t distance = vdupq_n_s8(int8_t(by));
  const uint8x16_t kept = vdupq_n_u8(mask);
  return {vandq_u8(vshlq_u8(x.low, distance), kept), vandq_u8(vshlq_u8(x.high, distance), kept)};
}
// bit `bit` of each byte, moved to bit 4
inline Bytes fifth_bits(Bytes x, int bit) { return moved_bits(x, 4 - bit, 0x10); }
// bits `bit` and `bit` + 1 of each byte, moved to bits 4 and 5
inline Bytes top_bits(Bytes x, int bit) { return moved_bits(x, 4 - bit, 0x30); }
// each byte, below 16, replaced by that entry of a table
inline Bytes look_up(Bytes x, const uint8_t* table) {
  const uint8x16_t entries = vld1q_u8(table);
  return {vqtbl1q_u8(entries, x.low), vqtbl1q_u8(entries, x.high)};
}

template <int place, bool is_signed>
inline float32x4_t byte_of(uint8x16_t x) {
  // to the top of its lane, and from there to the bottom
  const uint32x4_t top = vshlq_n_u32(vreinterpretq_u32_u8(x), 24 - 8 * place);
  if (is_signed) return vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_u32(top), 24));
  return vcvtq_f32_u32(vshrq_n_u32(top, 24));
}
// byte number `place` of each lane
template <int place, bool is_signed>
inline Floats byte_of(Bytes x) {
  return {byte_of<place, is_signed>(x.low), byte_of<place, is_signed>(x.high)};
}

// What is added to a signed weight so that `dot` takes it: nothing, signs are multiplied.
constexpr int WEIGHT_BIAS = 0;

// sums + the four products of each lane; activations of vectors 0 .. j stand behind one another
#if defined(__ARM_FEATURE_DOTPROD)
inline int32x4_t add_four(int32x4_t sums, uint8x16_t codes, const int8_t* activations, int j) {
  const int8x16_t weights = vreinterpretq_s8_u8(codes);
  // those of four vectors are loaded once, and the instruction takes its own from among them
  const int8x16_t loaded = vld1q_s8(activations - j % 4 * 4);
  switch (j % 4) {
    case 0: return vdotq_laneq_s32(sums, weights, loaded, 0);
    case 1: return vdotq_laneq_s32(sums, weights, loaded, 1);
    case 2: return vdotq_laneq_s32(sums, weights, loaded, 2);
    default: return vdotq_laneq_s32(sums, weights, loaded, 3);
  }
}
#else
inline int32x4_t add_four(int32x4_t sums, uint8x16_t codes, const int8_t* activations, int) {
  int32_t four;
  std::memcpy(&four, activations, 4);
  const int8x16_t weights = vreinterpretq_s8_u8(codes);
  const int8x16_t repeated = vreinterpretq_s8_s32(vdupq_n_s32(four));
  const int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(repeated));
  const int16x8_t high = vmull_high_s8(weights, repeated);
  // two products of 127 and at most 128 stay below 2^15
  return vpadalq_s16(sums, vpaddq_s16(low, high));
}
#endif

// Sums products of weights and activations: lane i sums over its own bytes.
template <int bits>
class Products {
 public:
  // Adds vector j of unsigned weights below 2^bits (8 bits: signed weights), each with the four
  // activations that are its.
  void add(Bytes weights, const int8_t* activations, int j) {
    sum_.low = add_four(sum_.low, weights.low, activations, j);
    sum_.high = add_four(sum_.high, weights.high, activations, j);
  }
  Ints total() const { return sum_; }

 private:
  Ints sum_{0};
};

}  // namespace octavo
