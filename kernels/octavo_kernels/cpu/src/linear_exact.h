// Products of packed weights and activations of 32 bits: the arithmetic of mode `exact`, and of
// weights that are floats.
//
// Over a half of a group, sum = fma(code - OFFSET, activation, sum) in the order of columns; then
// as in mode `fast`. A group of floats has scale 1 and no min. Knows packed weights and
// activations. Does not know files.
#pragma once

#include "formats.h"
#include "linear.h"

namespace octavo {

constexpr int HALF = GROUP / 2;

// Weights that are floats: by column, the rows of the panel.
template <class Element, Floats (*read)(const Element*)>
struct FloatFormat {
  static constexpr bool HAS_MIN = false, HAS_HALVES = false;
  static constexpr int64_t HEADER = 0, GROUPS = 1;
  static constexpr int64_t GROUP_BYTES = GROUP * LANES * sizeof(Element);
  static void expand(const uint8_t* p, Floats* weights) {
    for (int k = 0; k < GROUP; k++)
      weights[k] = read(reinterpret_cast<const Element*>(p) + k * LANES);
  }
  static Scales scales(const uint8_t*, const uint8_t*) {
    const Floats one(1.0f);
    return {{one, one}, one};
  }
};
using F32 = FloatFormat<float, load>;
using F16 = FloatFormat<uint16_t, load_half>;
using BF16 = FloatFormat<uint16_t, load_bfloat16>;

// The codes of a group less their offset, by column.
template <class Format>
struct Expanded : Format {
  static void expand(const uint8_t* p, Floats* weights) {
    constexpr bool is_signed = Format::BITS == 8 && WEIGHT_BIAS == 0;
    const Floats offset{float(Format::OFFSET)};
#pragma GCC unroll 8
    for (int j = 0; j < VECTORS; j++) {
      const Bytes codes = Format::code(p, j);
      weights[4 * j + 0] = byte_of<0, is_signed>(codes) - offset;
      weights[4 * j + 1] = byte_of<1, is_signed>(codes) - offset;
      weights[4 * j + 2] = byte_of<2, is_signed>(codes) - offset;
      weights[4 * j + 3] = byte_of<3, is_signed>(codes) - offset;
    }
  }
};

// Writes one row of a panel as floats.
template <class Format>
void decode_row(const uint8_t* panel, int64_t lane, int64_t columns, float* out) {
  for (int64_t g = 0; g * GROUP < columns; g += Format::GROUPS) {
    const uint8_t* header = panel;
    panel += Format::HEADER;
    for (int64_t i = 0; i < Format::GROUPS; i++, panel += Format::GROUP_BYTES) {
      Floats weights[GROUP];
      Format::expand(panel, weights);
      const Scales scales = Format::scales(header, panel);
      const int64_t first = (g + i) * GROUP;
      for (int64_t k = 0; k < GROUP && first + k < columns; k++) {
        const Floats scale = scales.scale[Format::HAS_HALVES ? k / HALF : 0];
        const Floats min = Format::HAS_MIN ? scales.min : Floats(0.0f);
        float values[LANES];
        store(values, fma(scale, weights[k], min));
        out[first + k] = values[lane];
      }
    }
  }
}

// A group of a stack of activations.
struct ExactGroup {
  float values[STACK][GROUP];
  float sum[STACK];
};

// Copies rows [first, first + STACK) of x, but none from `rows` on; columns from `columns` on are 0.
void copy_stack(ExactGroup* out, const float* x, int64_t stride, int64_t first, int64_t rows,
                int64_t columns);

template <class Format, int count>
void multiply_tile_exact(const uint8_t* panel, const ExactGroup* stack, int first, int64_t groups,
                         const PanelOutput& output) {
  Floats sums[count];
#pragma GCC unroll 8
  for (int c = 0; c < count; c++) sums[c] = Floats(0.0f);
  for (int64_t g = 0; g < groups; g += Format::GROUPS) {
    const uint8_t* header = panel;
    panel += Format::HEADER;
    for (int64_t i = 0; i < Format::GROUPS; i++, panel += Format::GROUP_BYTES, stack++) {
      if (output.ahead != 0) prefetch(panel + output.ahead, Format::GROUP_BYTES);
      Floats weights[GROUP];
      Format::expand(panel, weights);
      const Scales scales = Format::scales(header, panel);
      Floats halves[count][2];
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++) {
#pragma GCC unroll 8
        for (int c = 0; c < count; c++) halves[c][half] = Floats(0.0f);
#pragma GCC unroll 4
        for (int k = half * HALF; k < (half + 1) * HALF; k++) {
#pragma GCC unroll 8
          for (int c = 0; c < count; c++)
            halves[c][half] = fma(weights[k], Floats(stack->values[first + c][k]), halves[c][half]);
        }
      }
#pragma GCC unroll 8
      for (int c = 0; c < count; c++) {
        if constexpr (Format::HAS_HALVES) {
          sums[c] = fma(scales.scale[0], halves[c][0], sums[c]);
          sums[c] = fma(scales.scale[1], halves[c][1], sums[c]);
        } else {
          sums[c] = fma(scales.scale[0], halves[c][0] + halves[c][1], sums[c]);
        }
        if constexpr (Format::HAS_MIN) sums[c] = fma(scales.min, Floats(stack->sum[first + c]), sums[c]);
      }
    }
  }
  write_panel<count>(sums, output);
}

// Rows of stacks, `groups` apart, times one panel.
template <class Format>
void multiply_panel_exact(const uint8_t* panel, const ExactGroup* stack, int64_t groups,
                          PanelOutput output) {
  each_tile(stack, groups, output, [&](const ExactGroup* stack, int first, auto count) {
    multiply_tile_exact<Format, count>(panel, stack, first, groups, output);
  });
}

}  // namespace octavo
