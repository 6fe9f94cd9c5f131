// Products of packed weights and activations of eight bits: the arithmetic of mode `fast`.
//
// Activations are rounded to a signed byte, with a scale for each 32 of them. Products are summed
// as integers over a group, and over groups in rising order as
//   sum = fma(scale * activation_scale, products, sum), then fma(min, activation_sum, sum)
// so that an output depends on its own row alone, whatever the tile it is computed in.
// Knows packed weights and activations. Does not know files.
#pragma once

#include <type_traits>

#include "formats.h"
#include "operations.h"

namespace octavo {

// Rows of activations that meet the same weights at once, in registers.
constexpr int TILE = LANES == 16 ? 8 : 4;
// Rows of activations that lie together: whole tiles.
constexpr int STACK = LANES == 16 ? 16 : 4;

// A group of a stack of activations. Rows that do not exist hold anything.
struct ActivationGroup {
  int8_t codes[STACK][GROUP];
  float scale[STACK];
  float sum[STACK];             // scale * (sum of the codes)
  int32_t codes_sum[2][STACK];  // of each half
};

// The sum of the codes of a group, or of one of its halves, as the bits of a signed number: of rows
// that do not exist codes are anything, and what is made of them may be too large for one.
template <int parts>
uint32_t codes_sum(const ActivationGroup& group, int part, int row) {
  if constexpr (parts == 2) return uint32_t(group.codes_sum[part][row]);
  return uint32_t(group.codes_sum[0][row]) + uint32_t(group.codes_sum[1][row]);
}

// Rounds rows [first, first + STACK) of x, but none from `rows` on, to bytes; columns from
// `columns` on are 0. A NaN or an infinity makes its group's scale NaN, so that it shows.
void quantize_stack(ActivationGroup* out, const float* x, int64_t stride, int64_t first,
                    int64_t rows, int64_t columns);

template <int value>
using Constant = std::integral_constant<int, value>;

// Where the products of a panel go; `bias` may be null.
struct PanelOutput {
  float* out;  // of the tile's first row, at the panel's first output
  int64_t stride;
  const float* bias;
  int64_t num_outputs;  // of the panel that exist
  int64_t num_rows;
  int64_t ahead;        // bytes beyond the weights in use to fetch into the cache; 0: none

  void skip(int64_t rows) {
    out += rows * stride;
    num_rows -= rows;
    ahead = 0;
  }
};

// Fetches `bytes` that are needed soon.
inline void prefetch(const uint8_t* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
}

template <int count>
void write_panel(Floats* sums, const PanelOutput& output) {
#pragma GCC unroll 16
  for (int c = 0; c < count; c++) {
    if (c >= output.num_rows) break;
    float* out = output.out + c * output.stride;
    if (output.bias != nullptr) sums[c] = sums[c] + load_first(output.bias, output.num_outputs);
    if (output.num_outputs >= LANES)
      store(out, sums[c]);
    else
      store_first(out, sums[c], output.num_outputs);
  }
}

// Rows [first, first + count) of a stack times one panel.
template <class Format, int count>
void multiply_tile(const uint8_t* panel, const ActivationGroup* stack, int first, int64_t groups,
                   const PanelOutput& output) {
  Floats sums[count];
#pragma GCC unroll 8
  for (int c = 0; c < count; c++) sums[c] = Floats(0.0f);
  for (int64_t g = 0; g < groups; g += Format::GROUPS) {
    const uint8_t* header = panel;
    panel += Format::HEADER;
    for (int64_t i = 0; i < Format::GROUPS; i++, panel += Format::GROUP_BYTES, stack++) {
      if (output.ahead != 0) prefetch(panel + output.ahead, Format::GROUP_BYTES);
      const Scales scales = Format::scales(header, panel);
      constexpr int parts = Format::HAS_HALVES ? 2 : 1, vectors = VECTORS / parts;
#pragma GCC unroll 2
      for (int part = 0; part < parts; part++) {
        Products<Format::BITS> products[count];
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
          const Bytes codes = Format::code(panel, part * vectors + j);
#pragma GCC unroll 8
          for (int c = 0; c < count; c++)
            products[c].add(codes, stack->codes[first + c] + 4 * (part * vectors + j), j);
        }
#pragma GCC unroll 8
        for (int c = 0; c < count; c++) {
          Ints total = products[c].total();
          if constexpr (Format::OFFSET != 0) {
            const uint32_t offset = Format::OFFSET * codes_sum<parts>(*stack, part, first + c);
            total = total - Ints(int32_t(offset));
          }
          const Floats scale = scales.scale[part] * Floats(stack->scale[first + c]);
          sums[c] = fma(scale, to_floats(total), sums[c]);
        }
      }
      if constexpr (Format::HAS_MIN) {
#pragma GCC unroll 8
        for (int c = 0; c < count; c++)
          sums[c] = fma(scales.min, Floats(stack->sum[first + c]), sums[c]);
      }
    }
  }
  write_panel<count>(sums, output);
}

// Calls tile(stack, first, count) for the tiles of `output.num_rows` rows in stacks that are
// `groups` apart, with count as a constant; then moves `output` on.
template <class Group, class Tile>
void each_tile(const Group* stack, int64_t groups, PanelOutput& output, Tile&& tile) {
  for (int first = 0; output.num_rows > 0; output.skip(TILE)) {
    switch (output.num_rows) {
      case 1: tile(stack, first, Constant<1>()); break;
      case 2: tile(stack, first, Constant<2>()); break;
      case 3: tile(stack, first, Constant<3>()); break;
      case 4: tile(stack, first, Constant<4>()); break;
      // whole tiles: what rows give that do not exist is not written
      default: tile(stack, first, Constant<TILE>());
    }
    first = (first + TILE) % STACK;
    if (first == 0) stack += groups;
  }
}

// Rows of stacks, `groups` apart, times one panel.
template <class Format>
void multiply_panel(const uint8_t* panel, const ActivationGroup* stack, int64_t groups,
                    PanelOutput output) {
  each_tile(stack, groups, output, [&](const ActivationGroup* stack, int first, auto count) {
    multiply_tile<Format, count>(panel, stack, first, groups, output);
  });
}

}  // namespace octavo
