// Rows of scores that see all of a piece: from products to weights in registers.
//
// That is most of a long prompt. The arithmetic is that of `scale_products` and `put_weights`,
// operation by operation, so that a row has the same bits either way. Knows a piece of coded keys
// and values. Does not know positions.
#pragma once

#include "attention_tiles.h"
#include "attention_weights.h"

#if defined(OCTAVO_HAS_TILES)

namespace octavo {

class WholeRows {
 public:
  // Of so large a scale of values, at most.
  WholeRows(const CodedKeys& keys, const Piece& piece, float largest_scale)
      : keys_(keys), offsets_(piece.value_offsets), unit_(largest_scale / MOST_WEIGHT) {
    const Floats factor(weight_factor(largest_scale));
    for (int64_t i = 0; i < PIECE; i += LANES)
      store(factors_ + i, load(piece.value_scales + i) * factor);
  }

  // Splits the weights of row `row` of a stack, whose products are given; `has_offsets`: values
  // have them.
  template <bool has_offsets>
  WeightScale split(const int32_t* products, float query_scale, int32_t query_sum, int64_t row,
                    const SplitWeights& weights, RowState& state) const {
    constexpr int vectors = PIECE / LANES;
    const Ints bias(WEIGHT_BIAS * query_sum);
    const Floats factor(query_scale);
    Floats scores[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; v++) {
      const Ints product(_mm512_loadu_si512(products + v * LANES));
      scores[v] = to_floats(product - bias) * (factor * load(keys_.scales + v * LANES));
    }
    Floats tops[4] = {scores[0], scores[0], scores[0], scores[0]};
#pragma GCC unroll 16
    for (int v = 0; v < vectors; v++) tops[v % 4] = max(tops[v % 4], scores[v]);
    state.top = largest(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
    const Floats bound(state.top);
    Floats totals[4] = {Floats(0.0f), Floats(0.0f), Floats(0.0f), Floats(0.0f)};
    Floats offsets(0.0f);
#pragma GCC unroll 4
    for (int quad = 0; quad < vectors; quad += 4) {
      Ints rounded[4];
#pragma GCC unroll 4
      for (int k = 0; k < 4; k++) {
        const int64_t i = (quad + k) * LANES;
        const Floats shares = exp2_of_negative(scores[quad + k] - bound);
        totals[k] = totals[k] + shares;
        rounded[k] = to_ints(shares * load(factors_ + i));
        if constexpr (has_offsets)
          offsets = fma(to_floats(rounded[k]), load(offsets_ + i), offsets);
      }
      weights.put(row, quad * LANES, rounded);
    }
    state.total = sum((totals[0] + totals[1]) + (totals[2] + totals[3]));
    return {unit_, unit_ * sum(offsets)};
  }

 private:
  const CodedKeys& keys_;
  const float* const offsets_;
  const float unit_;
  alignas(64) float factors_[PIECE];
};

}  // namespace octavo

#endif
