// Noise from counters: Philox4x32-10 (Salmon et al., SC 2011), as `SamplingInputs` says.
//
// Knows integers. Does not know requests or draws.
#pragma once

#include <cstdint>

namespace octavo {

struct Words {
  uint32_t word[4];

  // A number in [0, 1) of words `first` and `first` + 1, a multiple of 2^-53.
  double uniform(int first) const {
    const uint64_t high = word[first] >> 5, low = word[first + 1] >> 6;
    return double((high << 26) + low) * 0x1p-53;
  }
};

inline Words philox(Words counter, uint64_t key) {
  uint32_t* word = counter.word;
  uint32_t low = uint32_t(key), high = uint32_t(key >> 32);
  for (int round = 0; round < 10; round++) {
    const uint64_t first = uint64_t(word[0]) * 0xD2511F53u;
    const uint64_t second = uint64_t(word[2]) * 0xCD9E8D57u;
    word[0] = uint32_t(second >> 32) ^ word[1] ^ low;
    word[2] = uint32_t(first >> 32) ^ word[3] ^ high;
    word[1] = uint32_t(second);
    word[3] = uint32_t(first);
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return counter;
}

// The noise of each level of a draw, in order, hashed from the row's one number.
class LevelNoise {
 public:
  explicit LevelNoise(double uniform) : key_(uint64_t(uniform * 0x1p53)) {}
  double next() {
    if (level_ % 2 == 0) words_ = philox({{uint32_t(level_ / 2), 0, 0, 1}}, key_);
    return words_.uniform(level_++ % 2 * 2);
  }

 private:
  uint64_t key_;
  Words words_{};
  int level_ = 0;
};

}  // namespace octavo
