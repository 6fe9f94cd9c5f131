// Vectors of floats and integers, as wide as the machine has them.
//
// One code serves AVX-512 with VNNI (16 lanes), AVX2 (8) and NEON (8). Every function is one or a
// few instructions, and says exactly which sums it makes: with fused multiply-adds written out
// and contraction off, a kernel gives the same bits however it is unrolled.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__AVX512DQ__) && defined(__AVX512VNNI__)
#include "vectors_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "vectors_avx2.h"
#elif defined(__aarch64__)
#include "vectors_neon.h"
#else
#error "these kernels need AVX2 with FMA and F16C, AVX-512 with VNNI, or NEON"
#endif

namespace octavo {

// exp(x) = (1 + rest + rest^2 * sum) * 2^power, for x bounded to [-87.3, 88].
struct Exponential {
  Floats rest, sum, power;
};

inline Exponential split_exp(Floats x) {
  // min and max give their second argument where one is NaN
  const Floats bounded = max(Floats(-87.33654f), min(Floats(88.0f), x));
  const Floats power = round(bounded * Floats(1.44269504088896341f));
  // ln 2 in two parts, so that what is taken off is exact
  Floats rest = fma(power, Floats(-0.693359375f), bounded);
  rest = fma(power, Floats(2.12194440e-4f), rest);
  Floats sum = Floats(1.9875691500e-4f);
  sum = fma(sum, rest, Floats(1.3981999507e-3f));
  sum = fma(sum, rest, Floats(8.3334519073e-3f));
  sum = fma(sum, rest, Floats(4.1665795894e-2f));
  sum = fma(sum, rest, Floats(1.6666665459e-1f));
  sum = fma(sum, rest, Floats(5.0000001201e-1f));
  return {rest, sum, power};
}

// exp(x), relative error below 3e-7 for x in [-87, 88]; smaller x gives 0, NaN stays NaN.
inline Floats exp(Floats x) {
  const Exponential e = split_exp(x);
  const Floats value = fma(e.rest * e.rest, e.sum, e.rest + Floats(1.0f));
  return zero_below(scale_by_power(value, e.power), x, -87.33654f);
}

// tanh(x), relative error below 5e-7: -m / (m + 2) with m = exp(-2|x|) - 1, the sign put back.
inline Floats tanh(Floats x) {
  const Exponential e = split_exp(abs(x) * Floats(-2.0f));
  const Floats scale = scale_by_power(Floats(1.0f), e.power);
  // 1 is taken off before it can hide the small part
  const Floats m = fma(scale, fma(e.rest * e.rest, e.sum, e.rest), scale - Floats(1.0f));
  return copy_sign(m / (m + Floats(2.0f)), x);
}

}  // namespace octavo
