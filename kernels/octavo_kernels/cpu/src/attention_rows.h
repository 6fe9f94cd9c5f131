// What attention does to one row of scores, and how pieces become a result.
//
// Scores are powers of two: what is left of e^x is 2^score. Which numbers are added in which order
// depends on their tokens' positions in the piece alone.
// Knows rows. Does not know where keys and values lie.
#pragma once

#include <limits>

#include "sizes.h"
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

// How products of queries and keys become powers of two.
struct ScoreRule {
  float query_scale;  // what queries are multiplied by beforehand
  float cap;          // 0: none

  static ScoreRule of(float scale, float softcap) {
    if (softcap > 0.0f) return {scale / softcap, softcap * LOG2_E};
    return {scale * LOG2_E, 0.0f};
  }
};

// What weights are relative to: the largest score, and the sum of 2^(score - top).
struct RowState {
  float top, total;
};

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

// Scores of tokens [first, last) of a piece, and of those that fill their vectors.
struct ScoreRow {
  float* scores;
  int64_t first, last;

  int64_t begin() const { return first / LANES * LANES; }
  int64_t end() const { return round_up(last, LANES); }
  // Calls work(i) for tokens that are in these vectors though the row does not see them.
  template <class Work>
  void each_unseen(Work&& work) const {
    for (int64_t i = begin(); i < first; i++) work(i);
    for (int64_t i = last; i < end(); i++) work(i);
  }
};

// Caps scores, and hides those of tokens that are not seen: whatever was there, also NaN.
inline void finish_scores(const ScoreRow& row, const ScoreRule& rule) {
  if (rule.cap > 0.0f)
    for (int64_t i = row.begin(); i < row.end(); i += LANES)
      store(row.scores + i, Floats(rule.cap) * tanh(load(row.scores + i)));
  row.each_unseen([&](int64_t i) { row.scores[i] = -std::numeric_limits<float>::infinity(); });
}

inline float largest_of(const ScoreRow& row) {
  const Floats first = load(row.scores + row.begin());
  Floats tops[4] = {first, first, first, first};
  each_of_four(row.begin(), row.end(), [&](int place, int64_t i) {
    tops[place] = max(tops[place], load(row.scores + i));
  });
  return largest(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
}

// Calls keep(i, weights) with what vectors of scores weigh, relative to the largest, `top`; returns
// their sum.
template <class Keep>
inline float weigh_scores(const ScoreRow& row, float top, Keep&& keep) {
  const Floats bound(top);
  Floats totals[4] = {Floats(0.0f), Floats(0.0f), Floats(0.0f), Floats(0.0f)};
  each_of_four(row.begin(), row.end(), [&](int place, int64_t i) {
    const Floats weights = exp2_of_negative(load(row.scores + i) - bound);
    totals[place] = totals[place] + weights;
    keep(i, weights);
  });
  return sum((totals[0] + totals[1]) + (totals[2] + totals[3]));
}

inline float first_lane(Floats x) {
  alignas(64) float lanes[LANES];
  store(lanes, x);
  return lanes[0];
}

// Takes in one more piece; pieces come in rising order.
inline void fold(RowState& state, float* sums, const RowState& part, const float* part_sums,
                 int64_t dims) {
  // relative to the larger of the two scores, so that one of them is as it was
  const bool is_old_larger = state.top > part.top;
  const float share = first_lane(exp2_of_negative(
      Floats(is_old_larger ? part.top - state.top : state.top - part.top)));
  const float old_share = is_old_larger ? 1.0f : share, new_share = is_old_larger ? share : 1.0f;
  for (int64_t i = 0; i < dims; i += LANES) {
    const Floats added = load(part_sums + i) * Floats(new_share);
    store(sums + i, fma(load(sums + i), Floats(old_share), added));
  }
  state = {is_old_larger ? state.top : part.top, state.total * old_share + part.total * new_share};
}

// out = factor * the row's result.
inline void finish(float* out, const RowState& state, const float* sums, int64_t head_dim,
                   float factor) {
  const Floats share(factor / state.total);
  for (int64_t i = 0; i < head_dim; i += LANES)
    store_first(out + i, load(sums + i) * share, head_dim - i);
}

}  // namespace octavo
