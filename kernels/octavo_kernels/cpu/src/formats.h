// How packed weights lie in memory, and how a group of them is read.
//
// A panel is LANES rows of a matrix; a group is 32 of its columns. Within a group the codes of the
// columns 4 j .. 4 j + 3 stand together, four bytes for each row, so that one vector of them meets
// the same four activations in all lanes. Scales keep the width they have in the file. K-quants
// have a header for each 8 groups. Knows layouts. Does not know how products are summed.
#pragma once

#include <cstdint>

#include "vectors.h"

namespace octavo {

constexpr int64_t GROUP = 32;
constexpr int VECTORS = GROUP / 4;  // of codes in a group

// A weight is scale * (code - OFFSET) + min; scales may differ between the halves of a group.
struct Scales {
  Floats scale[2];
  Floats min;
};

// Vector j of a group's codes, four bits of each: the low nibbles are the first half of the group.
inline Bytes nibbles(const uint8_t* p, int j) {
  const Bytes packed = load_packed(p + j % 4 * 4 * LANES);
  return j < 4 ? low_nibbles(packed) : high_nibbles(packed);
}

// Every format: vector j of a group's codes; BITS of a code as `dot` takes it, and what is taken off it; whether a weight has a
// min, and whether the two halves of a group have scales of their own; bytes of a header and of a
// group, and how many groups share a header.
struct Q4_0 {
  static constexpr int BITS = 4, OFFSET = 8;
  static constexpr bool HAS_MIN = false, HAS_HALVES = false;
  static constexpr int64_t HEADER = 0, GROUPS = 1, GROUP_BYTES = LANES * (16 + 2);
  static Bytes code(const uint8_t* p, int j) { return nibbles(p, j); }
  static Scales scales(const uint8_t*, const uint8_t* p) {
    const Floats d = load_half(reinterpret_cast<const uint16_t*>(p + LANES * 16));
    return {{d, d}, d};
  }
};

struct Q4_1 {
  static constexpr int BITS = 4, OFFSET = 0;
  static constexpr bool HAS_MIN = true, HAS_HALVES = false;
  static constexpr int64_t HEADER = 0, GROUPS = 1, GROUP_BYTES = LANES * (16 + 4);
  static Bytes code(const uint8_t* p, int j) { return nibbles(p, j); }
  static Scales scales(const uint8_t*, const uint8_t* p) {
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(p + LANES * 16);
    const Floats d = load_half(halves);
    return {{d, d}, load_half(halves + LANES)};
  }
};

struct Q5_0 {
  static constexpr int BITS = 5, OFFSET = 16;
  static constexpr bool HAS_MIN = false, HAS_HALVES = false;
  static constexpr int64_t HEADER = 0, GROUPS = 1, GROUP_BYTES = LANES * (20 + 2);
  static Bytes code(const uint8_t* p, int j) {
    return join(nibbles(p, j), fifth_bits(load_packed(p + LANES * 16), j));
  }
  static Scales scales(const uint8_t*, const uint8_t* p) {
    const Floats d = load_half(reinterpret_cast<const uint16_t*>(p + LANES * 20));
    return {{d, d}, d};
  }
};

struct Q5_1 {
  static constexpr int BITS = 5, OFFSET = 0;
  static constexpr bool HAS_MIN = true, HAS_HALVES = false;
  static constexpr int64_t HEADER = 0, GROUPS = 1, GROUP_BYTES = LANES * (20 + 4);
  static Bytes code(const uint8_t* p, int j) { return Q5_0::code(p, j); }
  static Scales scales(const uint8_t*, const uint8_t* p) {
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(p + LANES * 20);
    const Floats d = load_half(halves);
    return {{d, d}, load_half(halves + LANES)};
  }
};

struct Q8_0 {
  static constexpr int BITS = 8, OFFSET = WEIGHT_BIAS;
  static constexpr bool HAS_MIN = false, HAS_HALVES = false;
  static constexpr int64_t HEADER = 0, GROUPS = 1, GROUP_BYTES = LANES * (32 + 2);
  static Bytes code(const uint8_t* p, int j) { return load_packed(p + j * 4 * LANES); }
  static Scales scales(const uint8_t*, const uint8_t* p) {
    const Floats d = load_half(reinterpret_cast<const uint16_t*>(p + LANES * 32));
    return {{d, d}, d};
  }
};

// The sixteen values that the codes of IQ4_NL stand for (ggml's `kvalues_iq4nl`), biased.
constexpr uint8_t IQ4_VALUES[16] = {
    uint8_t(WEIGHT_BIAS - 127), uint8_t(WEIGHT_BIAS - 104), uint8_t(WEIGHT_BIAS - 83),
    uint8_t(WEIGHT_BIAS - 65),  uint8_t(WEIGHT_BIAS - 49),  uint8_t(WEIGHT_BIAS - 35),
    uint8_t(WEIGHT_BIAS - 22),  uint8_t(WEIGHT_BIAS - 10),  uint8_t(WEIGHT_BIAS + 1),
    uint8_t(WEIGHT_BIAS + 13),  uint8_t(WEIGHT_BIAS + 25),  uint8_t(WEIGHT_BIAS + 38),
    uint8_t(WEIGHT_BIAS + 53),  uint8_t(WEIGHT_BIAS + 69),  uint8_t(WEIGHT_BIAS + 89),
    uint8_t(WEIGHT_BIAS + 113)};

struct IQ4_NL {
  static constexpr int BITS = 8, OFFSET = WEIGHT_BIAS;
  static constexpr bool HAS_MIN = false, HAS_HALVES = false;
  static constexpr int64_t HEADER = 0, GROUPS = 1, GROUP_BYTES = LANES * (16 + 2);
  static Bytes code(const uint8_t* p, int j) { return look_up(nibbles(p, j), IQ4_VALUES); }
  static Scales scales(const uint8_t*, const uint8_t* p) {
    const Floats d = load_half(reinterpret_cast<const uint16_t*>(p + LANES * 16));
    return {{d, d}, d};
  }
};

// header: d, dmin. A group ends with its 6-bit scales and mins, one byte each.
template <int code_bytes>
inline Scales k_scales(const uint8_t* header, const uint8_t* p) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(header);
  const uint8_t* bytes = p + LANES * code_bytes;
  const Floats scale = load_half(halves) * load_bytes(bytes);
  const Floats min = load_half(halves + LANES) * load_bytes(bytes + LANES);
  return {{scale, scale}, Floats(0.0f) - min};
}

struct Q4_K {
  static constexpr int BITS = 4, OFFSET = 0;
  static constexpr bool HAS_MIN = true, HAS_HALVES = false;
  static constexpr int64_t HEADER = LANES * 4, GROUPS = 8, GROUP_BYTES = LANES * (16 + 2);
  static Bytes code(const uint8_t* p, int j) { return nibbles(p, j); }
  static Scales scales(const uint8_t* header, const uint8_t* p) { return k_scales<16>(header, p); }
};

struct Q5_K {
  static constexpr int BITS = 5, OFFSET = 0;
  static constexpr bool HAS_MIN = true, HAS_HALVES = false;
  static constexpr int64_t HEADER = LANES * 4, GROUPS = 8, GROUP_BYTES = LANES * (20 + 2);
  static Bytes code(const uint8_t* p, int j) { return Q5_0::code(p, j); }
  static Scales scales(const uint8_t* header, const uint8_t* p) { return k_scales<20>(header, p); }
};

// header: d. A group ends with the signed scales of its two halves.
struct Q6_K {
  static constexpr int BITS = 6, OFFSET = 32;
  static constexpr bool HAS_MIN = false, HAS_HALVES = true;
  static constexpr int64_t HEADER = LANES * 2, GROUPS = 8, GROUP_BYTES = LANES * (24 + 2);
  static Bytes code(const uint8_t* p, int j) {
    const Bytes bits = load_packed(p + LANES * (16 + j / 4 * 4));
    return join(nibbles(p, j), top_bits(bits, j % 4 * 2));
  }
  static Scales scales(const uint8_t* header, const uint8_t* p) {
    const Floats d = load_half(reinterpret_cast<const uint16_t*>(header));
    const int8_t* bytes = reinterpret_cast<const int8_t*>(p + LANES * 24);
    const Floats first = d * load_bytes(bytes), second = d * load_bytes(bytes + LANES);
    return {{first, second}, first};
  }
};

// Bytes of a panel of `groups` groups, which are whole headers.
template <class Format>
constexpr int64_t panel_bytes(int64_t groups) {
  return groups / Format::GROUPS * Format::HEADER + groups * Format::GROUP_BYTES;
}

}  // namespace octavo
