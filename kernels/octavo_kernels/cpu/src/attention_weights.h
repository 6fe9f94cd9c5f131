// Turns a row of scores into weights of coded values: integers, of 15 bits.
//
// Knows a row and what it sees. Does not know where weights are kept, nor what is multiplied.
#pragma once

#include "attention_codes.h"
#include "attention_unit.h"

namespace octavo {

// Lanes of p[i ...] whose number is in [first, last); the others 0.
inline Floats load_between(const float* p, int64_t i, int64_t first, int64_t last) {
  if (i >= first && i + LANES <= last) return load(p + i);
  alignas(64) float lanes[LANES];
  for (int64_t j = 0; j < LANES; j++) lanes[j] = i + j >= first && i + j < last ? p[i + j] : 0.0f;
  return load(lanes);
}

// The largest scale of the values that rows see; NaN where one of them is. It is found once for
// rows that see the same.
class LargestScale {
 public:
  explicit LargestScale(const float* scales) : scales_(scales) {}

  float of(const ScoreRow& row) {
    if (row.first == first_ && row.last == last_) return largest_;
    Floats most(0.0f), poison(0.0f);
    for (int64_t i = row.begin(); i < row.end(); i += LANES) {
      const Floats scale = load_between(scales_, i, row.first, row.last);
      most = max(most, scale);
      poison = fma(scale, Floats(0.0f), poison);
    }
    first_ = row.first;
    last_ = row.last;
    return largest_ = largest(most) + sum(poison);
  }

 private:
  const float* const scales_;
  int64_t first_ = 0, last_ = 0;  // nothing yet
  float largest_ = 0.0f;
};

// What shares are multiplied by beside their values' scales: the weight of the largest share and
// scale is the largest.
inline float weight_factor(float largest_scale) {
  return largest_scale > 1e-30f ? MOST_WEIGHT / largest_scale : 0.0f;
}

// Weights of a row, one after the other.
struct ShortWeights {
  int16_t* of;

  void put(int64_t i, Ints weights) const { store_shorts(of + i, weights); }
  void clear(int64_t first, int64_t last) const { std::fill(of + first, of + last, int16_t(0)); }
};

// One row of a piece: its scores, of the whole piece, and the tokens that weights are wanted of.
struct WantedWeights {
  int64_t row, piece;
  float* scores;
  Range tokens;
};

// Puts the weights of a row: of what it does not see, 0.
template <class Weights>
WeightScale put_weights(const Unit& unit, const WantedWeights& wanted, LargestScale& largest_scale,
                        const Weights& weights, RowState& state) {
  const Piece& data = *unit.desk.piece;
  const bool is_asymmetric = unit.layer.page.format == CacheFormat::INT4;
  const Range seen = unit.seen(wanted.row, wanted.piece);
  if (seen.is_empty()) {
    weights.clear(wanted.tokens.first, wanted.tokens.last);
    return {0.0f, 0.0f};
  }
  const ScoreRow own{wanted.scores, seen.first, seen.last};
  finish_scores(own, unit.layer.rule);
  const float most = largest_scale.of(own);
  const Floats factor(weight_factor(most));
  // what the values' offsets add up to, by the weights as they are rounded
  Floats offsets(0.0f);
  state.top = largest_of(own);
  state.total = weigh_scores(own, state.top, [&](int64_t i, Floats shares) {
    const Ints rounded = to_ints(shares * (load(data.value_scales + i) * factor));
    weights.put(i, rounded);
    if (is_asymmetric)
      offsets = fma(to_floats(rounded),
                    load_between(data.value_offsets, i, seen.first, seen.last), offsets);
  });
  weights.clear(wanted.tokens.first, seen.first);
  weights.clear(seen.last, wanted.tokens.last);
  const float unit_weight = most / MOST_WEIGHT;
  return {unit_weight, unit_weight * sum(offsets)};
}

}  // namespace octavo
