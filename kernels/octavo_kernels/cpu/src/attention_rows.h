// What attention does to one row of scores, and how pieces become a result.
//
// Scores are powers of two: what is left of e^x is 2^score. Which numbers
// are added in which order depends on their tokens' positions in the piece alone. Knows rows. Does not know where keys and values lie.
#pragma once

#include <limits>

#include "vectors.h"

namespace octavo {

constexpr float LOG2_E = 1.44269504088896341f;

// 2^x for x <= 0, relative error below 2e-7; 0 from about 2^-127 on, NaN stays NaN.
inline Floats exp2_of_negative(Floats x) {
  // adding this leaves the nearest whole number in the low bits
  const Floats rounder(12582912.0f);
  const Floats bounded = max(Floats(-127.0f), x);
  const Floats shifted = bounded + rounder;
  const Floats rest = bounded - (shifted - rounder);
  Floats sum(0.001326472731307149f);
  sum = fma(sum, rest, Floats(0.009671512991189957f));
  sum = fma(sum, rest, Floats(0.05550733581185341f));
  sum = fma(sum, rest, Floats(0.24022242426872253f));
  sum = fma(sum, rest, Floats(0.6931470036506653f));
  sum = fma(sum, rest, Floats(1.0f));
  // a power of -127 gives bits of 0
  return sum * from_bits(shift_left(bits_of(shifted), 23) + Ints(127 << 23));
}

// What scales the codes of a piece, by token; null where the cache holds plain numbers.
struct PieceScales {
  const float *key, *key_least, *value, *value_least;
};

// How products of queries and keys become powers of two.
struct ScoreRule {
  float query_scale;  // what queries are multiplied by beforehand
  float cap;          // 0: none

  static ScoreRule of(float scale, float softcap) {
    if (softcap > 0.0f) return {scale / softcap, softcap * LOG2_E};
    return {scale * LOG2_E, 0.0f};
  }
};

// What a piece adds up to for one row, beside its sums of values.
struct PartStats {
  float top;    // the largest score
  float total;  // sum of 2^(score - top)
  float least;  // sum of the weights' shares of what all dimensions have in common
};

// Lanes of p[i ...] whose number is in [first, last); the others 0.
inline Floats load_between(const float* p, int64_t i, int64_t first, int64_t last) {
  if (i >= first) return load_first(p + i, last - i);
  alignas(64) float lanes[LANES];
  for (int64_t j = 0; j < LANES; j++) lanes[j] = i + j >= first && i + j < last ? p[i + j] : 0.0f;
  return load(lanes);
}

// Calls work(place, i) for vectors [begin, end) of a piece; `place`, below 4, tells which of four
// sums that are made side by side, so that an addition need not wait for the one before, is its.
template <class Work>
inline void each_of_four(int64_t begin, int64_t end, Work&& work) {
  int64_t i = begin;
  for (; i < end && i % (4 * LANES) != 0; i += LANES) work(i / LANES % 4, i);
  for (; i + 4 * LANES <= end; i += 4 * LANES)
#pragma GCC unroll 4
    for (int place = 0; place < 4; place++) work(place, i + place * LANES);
  for (; i < end; i += LANES) work(i / LANES % 4, i);
}

// Products of queries and codes become scores.
inline void scale_scores(float* scores, int64_t begin, int64_t end, const PieceScales& scales,
                         float query_sum, const ScoreRule& rule) {
  for (int64_t i = begin; i < end; i += LANES) {
    Floats score = load(scores + i);
    if (scales.key != nullptr) score = score * load(scales.key + i);
    if (scales.key_least != nullptr)
      score = fma(Floats(query_sum), load(scales.key_least + i), score);
    if (rule.cap > 0.0f) score = Floats(rule.cap) * tanh(score);
    store(scores + i, score);
  }
}

// Turns scores [begin, end) into weights, relative to the largest: returns the weights' sum.
inline float weights_of(float* scores, int64_t begin, int64_t end, float top) {
  const Floats bound(top);
  Floats totals[4] = {Floats(0.0f), Floats(0.0f), Floats(0.0f), Floats(0.0f)};
  each_of_four(begin, end, [&](int place, int64_t i) {
    const Floats weight = exp2_of_negative(load(scores + i) - bound);
    totals[place] = totals[place] + weight;
    store(scores + i, weight);
  });
  return sum((totals[0] + totals[1]) + (totals[2] + totals[3]));
}

inline float largest_of(const float* scores, int64_t begin, int64_t end) {
  const Floats first = load(scores + begin);
  Floats tops[4] = {first, first, first, first};
  each_of_four(begin, end,
               [&](int place, int64_t i) { tops[place] = max(tops[place], load(scores + i)); });
  return largest(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
}

// Turns the scores of tokens [first, last) of a piece into weights of values, in place.
inline PartStats soften(float* scores, int64_t first, int64_t last, const PieceScales& scales,
                        float query_sum, const ScoreRule& rule) {
  const int64_t begin = first / LANES * LANES, end = (last + LANES - 1) / LANES * LANES;
  if (scales.key != nullptr || rule.cap > 0.0f)
    scale_scores(scores, begin, end, scales, query_sum, rule);
  // tokens that the row does not see: whatever was there, also NaN
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  for (int64_t i = begin; i < first; i++) scores[i] = nothing;
  for (int64_t i = last; i < end; i++) scores[i] = nothing;
  PartStats stats{largest_of(scores, begin, end), 0.0f, 0.0f};
  stats.total = weights_of(scores, begin, end, stats.top);
  if (scales.value_least != nullptr) {
    Floats least(0.0f);
    for (int64_t i = begin; i < end; i += LANES)
      least = fma(load(scores + i), load_between(scales.value_least, i, first, last), least);
    stats.least = sum(least);
  }
  if (scales.value != nullptr)
    for (int64_t i = begin; i < end; i += LANES)
      store(scores + i, load(scores + i) * load(scales.value + i));
  return stats;
}

// The pieces of a row so far: sums of values relative to the largest score.
struct RowState {
  float top, total;
};

// Takes in one more piece; pieces come in rising order.
inline void fold(RowState& state, float* sums, const RowState& part, const float* part_sums,
                 int64_t dims) {
  const float top = state.top > part.top ? state.top : part.top;
  alignas(64) float shares[2][LANES];
  store(shares[0], exp2_of_negative(Floats(state.top - top)));
  store(shares[1], exp2_of_negative(Floats(part.top - top)));
  const Floats old_share(shares[0][0]), new_share(shares[1][0]);
  for (int64_t i = 0; i < dims; i += LANES)
    store(sums + i, fma(load(sums + i), old_share, load(part_sums + i) * new_share));
  state = {top, state.total * shares[0][0] + part.total * shares[1][0]};
}

// out = the row's result.
inline void finish(float* out, const RowState& state, const float* sums, int64_t head_dim) {
  const Floats share(1.0f / state.total);
  for (int64_t i = 0; i < head_dim; i += LANES)
    store_first(out + i, load(sums + i) * share, head_dim - i);
}

}  // namespace octavo
