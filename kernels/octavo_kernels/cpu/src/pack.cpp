// Repacks the blocks of a file into panels.
//
// Reads ggml's layouts, scales and codes as they are: nothing is rounded. Knows files' blocks and
// panels (formats.h). Does not know products.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "linear_exact.h"
#include "parallel.h"
#include "sizes.h"

namespace octavo {

namespace {

// A group of a row, as its file holds it. `d` and `m` are the halves of its block; `scales` are
// those of K-quants.
struct SourceGroup {
  uint8_t codes[GROUP];
  uint16_t d, m;
  uint8_t scales[2];
};

uint16_t half_at(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, 2);
  return half;
}

void read_nibbles(const uint8_t* p, uint8_t* codes) {
  for (int i = 0; i < 16; i++) {
    codes[i] = p[i] & 15;
    codes[i + 16] = p[i] >> 4;
  }
}

void read_fifth_bits(const uint8_t* p, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, p, 4);
  for (int i = 0; i < 32; i++) codes[i] |= (bits >> i & 1) << 4;
}

// Scale and min number `j` of the eight that twelve bytes hold, six bits each.
void read_k_scales(const uint8_t* p, int64_t j, uint8_t* scales) {
  if (j < 4) {
    scales[0] = p[j] & 63;
    scales[1] = p[j + 4] & 63;
  } else {
    scales[0] = (p[j + 4] & 15) | (p[j - 4] >> 6 << 4);
    scales[1] = (p[j + 4] >> 4) | (p[j] >> 6 << 4);
  }
}

// One reader for each format: group `g` of a row. BLOCK is the bytes of a block in the file.
struct ReadQ4_0 {
  static constexpr int64_t BLOCK = 18;
  static void read(const uint8_t* row, int64_t g, SourceGroup& out) {
    const uint8_t* block = row + g * BLOCK;
    out.d = half_at(block);
    read_nibbles(block + 2, out.codes);
  }
};
struct ReadQ4_1 {
  static constexpr int64_t BLOCK = 20;
  static void read(const uint8_t* row, int64_t g, SourceGroup& out) {
    const uint8_t* block = row + g * BLOCK;
    out.d = half_at(block);
    out.m = half_at(block + 2);
    read_nibbles(block + 4, out.codes);
  }
};
struct ReadQ5_0 {
  static constexpr int64_t BLOCK = 22;
  static void read(const uint8_t* row, int64_t g, SourceGroup& out) {
    const uint8_t* block = row + g * BLOCK;
    out.d = half_at(block);
    read_nibbles(block + 6, out.codes);
    read_fifth_bits(block + 2, out.codes);
  }
};
struct ReadQ5_1 {
  static constexpr int64_t BLOCK = 24;
  static void read(const uint8_t* row, int64_t g, SourceGroup& out) {
    const uint8_t* block = row + g * BLOCK;
    out.d = half_at(block);
    out.m = half_at(block + 2);
    read_nibbles(block + 8, out.codes);
    read_fifth_bits(block + 4, out.codes);
  }
};
struct ReadQ8_0 {
  static constexpr int64_t BLOCK = 34;
  static void read(const uint8_t* row, int64_t g, SourceGroup& out) {
    const uint8_t* block = row + g * BLOCK;
    out.d = half_at(block);
    for (int i = 0; i < GROUP; i++) out.codes[i] = uint8_t(block[2 + i] + WEIGHT_BIAS);
  }
};
struct ReadQ4_K {
  static constexpr int64_t BLOCK = 144;
  static void read(const uint8_t* row, int64_t g, SourceGroup& out) {
    const uint8_t* block = row + g / 8 * BLOCK;
    const uint8_t* bytes = block + 16 + g % 8 / 2 * 32;
    out.d = half_at(block);
    out.m = half_at(block + 2);
    read_k_scales(block + 4, g % 8, out.scales);
    for (int i = 0; i < GROUP; i++) out.codes[i] = g % 2 ? bytes[i] >> 4 : bytes[i] & 15;
  }
};
struct ReadQ5_K {
  static constexpr int64_t BLOCK = 176;
  static void read(const uint8_t* row, int64_t g, SourceGroup& out) {
    const uint8_t* block = row + g / 8 * BLOCK;
    const uint8_t *high = block + 16, *bytes = block + 48 + g % 8 / 2 * 32;
    out.d = half_at(block);
    out.m = half_at(block + 2);
    read_k_scales(block + 4, g % 8, out.scales);
    for (int i = 0; i < GROUP; i++) {
      const uint8_t low = g % 2 ? bytes[i] >> 4 : bytes[i] & 15;
      out.codes[i] = low | (high[i] >> (g % 8) & 1) << 4;
    }
  }
};
struct ReadQ6_K {
  static constexpr int64_t BLOCK = 210;
  static void read(const uint8_t* row, int64_t g, SourceGroup& out) {
    const uint8_t* block = row + g / 8 * BLOCK;
    const int64_t half = g % 8 / 4, quarter = g % 4;
    const uint8_t* low = block + half * 64 + quarter % 2 * 32;
    const uint8_t* high = block + 128 + half * 32;
    const uint8_t* scales = block + 192 + half * 8 + quarter * 2;
    out.d = half_at(block + 208);
    out.scales[0] = scales[0];
    out.scales[1] = scales[1];
    for (int i = 0; i < GROUP; i++) {
      const uint8_t nibble = quarter < 2 ? low[i] & 15 : low[i] >> 4;
      out.codes[i] = nibble | (high[i] >> (2 * quarter) & 3) << 4;
    }
  }
};

bool is_finite_half(uint16_t half) { return (half & 0x7C00) != 0x7C00; }

// Puts the codes of one row of a panel where `unpack` looks for them.
template <class Format>
void write_codes(uint8_t* group, int64_t lane, const uint8_t* codes) {
  // those formats whose codes are looked up are stored as nibbles, though they multiply as bytes
  constexpr bool is_bytes = Format::BITS == 8 && Format::GROUP_BYTES >= LANES * GROUP;
  for (int k = 0; k < GROUP; k++) {
    const int64_t vector = k / 4, place = lane * 4 + k % 4;
    if (is_bytes) {
      group[vector * 4 * LANES + place] = codes[k];
      continue;
    }
    group[vector % 4 * 4 * LANES + place] |= (codes[k] & 15) << (k < 16 ? 0 : 4);
    uint8_t* high = group + LANES * 16;
    if (Format::BITS == 5) high[place] |= (codes[k] >> 4) << vector;
    if (Format::BITS == 6) high[vector / 4 * 4 * LANES + place] |= (codes[k] >> 4) << vector % 4 * 2;
  }
}

template <class Format, class Read>
void write_group(uint8_t* header, uint8_t* group, int64_t lane, const SourceGroup& source) {
  write_codes<Format>(group, lane, source.codes);
  constexpr int numbers = Format::HEADER != 0 ? 2 : Format::HAS_MIN ? 4 : 2;
  uint8_t* end = group + Format::GROUP_BYTES - LANES * numbers;
  if (Format::HEADER == 0) {
    std::memcpy(end + lane * 2, &source.d, 2);
    if (Format::HAS_MIN) std::memcpy(end + LANES * 2 + lane * 2, &source.m, 2);
    return;
  }
  end[lane] = source.scales[0];
  end[LANES + lane] = source.scales[1];
  std::memcpy(header + lane * 2, &source.d, 2);
  if (Format::HAS_MIN) std::memcpy(header + LANES * 2 + lane * 2, &source.m, 2);
}

struct Source {
  const uint8_t* data;
  int64_t row_bytes, rows, columns;
};

// Packs one panel; returns whether all its numbers are finite.
template <class Format, class Read>
bool pack_panel(const Source& source, int64_t panel, uint8_t* out) {
  const int64_t groups = source.columns / GROUP;
  std::memset(out, 0, panel_bytes<Format>(groups));
  bool is_finite = true;
  const int64_t rows = std::min<int64_t>(LANES, source.rows - panel * LANES);
  for (int64_t g = 0; g < groups; g++) {
    constexpr int64_t unit = Format::HEADER + Format::GROUPS * Format::GROUP_BYTES;
    uint8_t* header = out + g / Format::GROUPS * unit;
    uint8_t* group = header + Format::HEADER + g % Format::GROUPS * Format::GROUP_BYTES;
    for (int64_t lane = 0; lane < rows; lane++) {
      SourceGroup read{};
      Read::read(source.data + (panel * LANES + lane) * source.row_bytes, g, read);
      is_finite = is_finite && is_finite_half(read.d) && is_finite_half(read.m);
      write_group<Format, Read>(header, group, lane, read);
    }
  }
  return is_finite;
}

template <class Element>
bool is_finite(Element value, bool is_bfloat16) {
  if constexpr (sizeof(Element) == 4) {
    return std::isfinite(value);
  } else {
    const uint16_t exponent = is_bfloat16 ? 0x7F80 : 0x7C00;
    return (value & exponent) != exponent;
  }
}

template <class Element, bool is_bfloat16>
bool pack_floats(const Source& source, int64_t panel, uint8_t* out) {
  const int64_t groups = divide_up(source.columns, GROUP);
  Element* elements = reinterpret_cast<Element*>(out);
  std::memset(out, 0, groups * GROUP * LANES * sizeof(Element));
  bool is_all_finite = true;
  const int64_t rows = std::min<int64_t>(LANES, source.rows - panel * LANES);
  for (int64_t lane = 0; lane < rows; lane++) {
    const uint8_t* row = source.data + (panel * LANES + lane) * source.row_bytes;
    for (int64_t k = 0; k < source.columns; k++) {
      Element element;
      std::memcpy(&element, row + k * sizeof(Element), sizeof(Element));
      is_all_finite = is_all_finite && is_finite(element, is_bfloat16);
      elements[k * LANES + lane] = element;
    }
  }
  return is_all_finite;
}

using Pack = bool (*)(const Source&, int64_t, uint8_t*);

// In the order of FORMATS in linear.cpp.
constexpr Pack PACKS[] = {
    pack_panel<Q4_0, ReadQ4_0>,    pack_panel<Q4_1, ReadQ4_1>, pack_panel<Q5_0, ReadQ5_0>,
    pack_panel<Q5_1, ReadQ5_1>,    pack_panel<Q8_0, ReadQ8_0>, pack_panel<Q4_K, ReadQ4_K>,
    pack_panel<Q5_K, ReadQ5_K>,    pack_panel<Q6_K, ReadQ6_K>, pack_panel<IQ4_NL, ReadQ4_0>,
    pack_floats<float, false>,     pack_floats<uint16_t, false>, pack_floats<uint16_t, true>,
};

}  // namespace

}  // namespace octavo

using namespace octavo;

// Packs the rows of a matrix into panels, one after the other. Returns 0 when a scale or a weight
// is NaN or infinite, else 1.
extern "C" int64_t octavo_pack(int64_t format, const uint8_t* data, int64_t row_bytes,
                               int64_t rows, int64_t columns, uint8_t* out, int64_t panel_bytes,
                               int64_t num_threads) {
  const Source source{data, row_bytes, rows, columns};
  std::atomic<bool> is_finite{true};
  const int64_t panels = divide_up(rows, LANES);
  std::atomic<int64_t> next{0};
  on_team(num_threads, [&] {
    for (int64_t panel = next++; panel < panels; panel = next++)
      if (!PACKS[format](source, panel, out + panel * panel_bytes)) is_finite = false;
  });
  return is_finite ? 1 : 0;
}
