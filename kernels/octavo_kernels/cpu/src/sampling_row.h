// One row of logits: its largest values, what its tokens weigh, and which of them are kept.
//
// Everything here is a function of the row alone, computed block by block: who computes a block,
// and when, changes no bit. Knows floats and ids. Does not know filters, noise or requests.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "sizes.h"
#include "vectors.h"

namespace octavo {

// Ids whose weights are summed in one go, and ids of which only the largest logit is noted.
constexpr int64_t BLOCK_IDS = 256;
constexpr int64_t GROUP_IDS = 64;
constexpr int64_t GROUPS = BLOCK_IDS / GROUP_IDS;
constexpr float INFINITE = std::numeric_limits<float>::infinity();

// Numbers in whole blocks: the last is filled up with -inf, in memory of its own.
class Blocks {
 public:
  Blocks(const float* numbers, int64_t count)
      : count(divide_up(count, BLOCK_IDS)), numbers_(numbers), whole_(count / BLOCK_IDS) {
    const int64_t left = count % BLOCK_IDS;
    if (left == 0) return;
    std::fill(tail_, tail_ + BLOCK_IDS, -INFINITE);
    std::memcpy(tail_, numbers + whole_ * BLOCK_IDS, size_t(left) * sizeof(float));
  }
  const float* operator[](int64_t block) const {
    return block < whole_ ? numbers_ + block * BLOCK_IDS : tail_;
  }
  const float* group(int64_t group) const {
    return (*this)[group / GROUPS] + group % GROUPS * GROUP_IDS;
  }

  const int64_t count;

 private:
  const float* numbers_;
  int64_t whole_;
  alignas(64) float tail_[BLOCK_IDS];
};

// Writes the largest number of each group of blocks [first, last). Where any number is NaN or
// +inf, the first of these is NaN.
inline void find_tops(const Blocks& x, int64_t first, int64_t last, float* tops) {
  const Floats lowest(-FLT_MAX), zero(0.0f);
  Floats poisons[2] = {zero, zero};
  for (int64_t group = first * GROUPS; group < last * GROUPS; group++) {
    const float* numbers = x.group(group);
    Floats top(-INFINITE);
    for (int64_t i = 0; i < GROUP_IDS; i += LANES) {
      const Floats next = load(numbers + i);
      top = max(next, top);
      // 0 times what is finite, or -inf; max gives its second argument where one is NaN
      Floats& poison = poisons[i / LANES % 2];
      poison = fma(max(lowest, next), zero, poison);
    }
    tops[group] = largest(top);
  }
  const float poison = sum(poisons[0] + poisons[1]);
  if (poison != 0.0f) tops[first * GROUPS] = poison;
}

// The largest of `tops`; NaN where one of them is NaN, or +inf.
inline float best_of(const float* tops, int64_t count) {
  Floats best(-INFINITE), poison(0.0f);
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    const Floats next = load(tops + i);
    best = max(next, best);
    poison = fma(max(Floats(-FLT_MAX), next), Floats(0.0f), poison);
  }
  float top = largest(best), bad = sum(poison);
  for (; i < count; i++) {
    if (!(tops[i] < INFINITE)) bad = std::numeric_limits<float>::quiet_NaN();
    top = std::max(top, tops[i]);
  }
  return bad == 0.0f ? top : bad;
}

// Stands for the first id of tokens that are all kept, as far as ids go.
constexpr int64_t KEPT_IDS = std::numeric_limits<int64_t>::min() / 2;

// Which tokens are kept: those of a logit above `value`, and those of that logit whose id is
// below `end`.
struct Cut {
  float value = -FLT_MAX;
  int64_t end = std::numeric_limits<int64_t>::max();

  // The next float, which only what is above `value` reaches.
  float above() const { return std::nextafter(value, INFINITE); }
};

// What tokens weigh: exp((x - best) / temperature) where they are kept, else 0.
struct Weights {
  float best, inverse;  // inverse: of the temperature
  Cut cut;

  Weights(float best, float temperature)
      // so bounded, it gives no NaN with 0 and -inf
      : best(best), inverse(std::min(FLT_MAX, std::max(FLT_MIN, 1.0f / temperature))) {}

  // Writes those of ids [first, first + count), a multiple of LANES.
  void operator()(const float* x, int64_t count, int64_t first, float* out) const {
    const Floats peak(best), factor(inverse);
    const float bound = first < cut.end ? cut.value : cut.above();
    for (int64_t i = 0; i < count; i += LANES) {
      const Floats next = load(x + i);
      store(out + i, zero_below(exp((next - peak) * factor), next, bound));
    }
    if (first < cut.end && cut.end < first + count)
      for (int64_t i = cut.end - first; i < count; i++)
        if (x[i] == cut.value) out[i] = 0.0f;
  }

  // Whether all tokens of logits up to `top` weigh nothing.
  bool is_nothing(float top) const {
    return top < cut.value || (top - best) * inverse < -87.33654f;  // as `exp` has it
  }
};

inline float sum_block(const float* numbers) {
  Floats sums[4];
  for (int k = 0; k < 4; k++) sums[k] = load(numbers + k * LANES);
  for (int64_t i = 4 * LANES; i < BLOCK_IDS; i += 4 * LANES)
    for (int k = 0; k < 4; k++) sums[k] = sums[k] + load(numbers + i + k * LANES);
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Writes the sum of the weights of each of blocks [first, last).
inline void sum_weights(const Blocks& x, int64_t first, int64_t last, const Weights& weights,
                        const float* tops, float* sums) {
  alignas(64) float numbers[BLOCK_IDS];
  for (int64_t block = first; block < last; block++) {
    const float* its = tops + block * GROUPS;
    sums[block] = 0.0f;
    if (weights.is_nothing(*std::max_element(its, its + GROUPS))) continue;
    weights(x[block], BLOCK_IDS, block * BLOCK_IDS, numbers);
    sums[block] = sum_block(numbers);
  }
}

}  // namespace octavo
