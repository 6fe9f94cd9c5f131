// The products of linear.h on AMX: a tile of activations times a panel is one instruction a group.
//
// Integers are exact, and floats are summed in the order of linear.h, so that the bits are the
// same. Codes are expanded to bytes once for all rows, which pays where there is more than a TILE.
// Knows packed weights and activations. Does not know files.
#pragma once

#include "linear.h"
#include "tiles.h"

#if defined(OCTAVO_HAS_TILES)

#include <utility>

namespace octavo {

// Parts of a group that have scales of their own.
template <class Format>
constexpr int PARTS = Format::HAS_HALVES ? 2 : 1;

template <int... row>
struct Rows {};
template <int... row>
constexpr Rows<row...> all_rows(std::integer_sequence<int, row...>) {
  return {};
}

template <int... row>
[[gnu::always_inline]] inline void clear_sums(Floats* sums, Rows<row...>) {
  ((sums[row] = Floats(0.0f)), ...);
}
template <int... row>
[[gnu::always_inline]] inline void copy_sums(Floats* to, const Floats* from, Rows<row...>) {
  ((to[row] = from[row]), ...);
}

// A group of a panel: for each four columns, the codes less their offset of LANES rows.
struct ExpandedGroup {
  int8_t codes[VECTORS][4 * LANES];
  float scale[2][LANES];
  float min[LANES];
};

// Tile registers, two of each: products, activations of a stack, and weights of a group.
enum : int { PRODUCTS = 0, ACTIVATIONS = 2, WEIGHTS = 4 };

// The shapes of these, for groups in `parts` parts.
inline auto shapes_of_parts(int parts) {
  return [parts](int number) -> TileShape {
    if (number < ACTIVATIONS) return {STACK, 4 * LANES};
    if (number < WEIGHTS) return {STACK, GROUP / parts};
    if (number < WEIGHTS + 2) return {VECTORS / parts, 4 * LANES};
    return {0, 0};
  };
}

template <class Format>
void expand_panel(ExpandedGroup* out, const uint8_t* panel, int64_t groups) {
  const __m512i offset = _mm512_set1_epi8(char(Format::OFFSET));
  for (int64_t g = 0; g < groups; g += Format::GROUPS) {
    const uint8_t* header = panel;
    panel += Format::HEADER;
    for (int64_t i = 0; i < Format::GROUPS; i++, panel += Format::GROUP_BYTES, out++) {
      for (int j = 0; j < VECTORS; j++)
        _mm512_store_si512(out->codes[j], _mm512_sub_epi8(Format::code(panel, j).v, offset));
      const Scales scales = Format::scales(header, panel);
      store(out->scale[0], scales.scale[0]);
      if constexpr (Format::HAS_HALVES) store(out->scale[1], scales.scale[1]);
      if constexpr (Format::HAS_MIN) store(out->min, scales.min);
    }
  }
}

// Adds the products of a part of a group to the sums of a stack. Rows are template arguments, so
// that the compiler holds sums in registers although there are instructions in between that it
// knows nothing of.
template <class Format, int part, int... row>
[[gnu::always_inline]] inline void add_part(Floats* sums, const int32_t (*products)[LANES],
                                            const ExpandedGroup& weights,
                                            const ActivationGroup& stack, Rows<row...>) {
  const Floats scale = load(weights.scale[part]);
  ((sums[row] = fma(scale * Floats(stack.scale[row]),
                    to_floats(Ints(_mm512_load_si512(products[row]))), sums[row])),
   ...);
  if constexpr (Format::HAS_MIN && part == PARTS<Format> - 1) {
    const Floats min = load(weights.min);
    ((sums[row] = fma(min, Floats(stack.sum[row]), sums[row])), ...);
  }
}

// Multiplies a part of a group; the products are in the tile register PRODUCTS + turn.
template <class Format, int part, int turn>
inline void multiply_part(const ExpandedGroup& weights, const ActivationGroup& stack) {
  load_tile<WEIGHTS + turn>(weights.codes[part * VECTORS / PARTS<Format>], 4 * LANES);
  load_tile<ACTIVATIONS + turn>(stack.codes[0] + part * GROUP / PARTS<Format>, GROUP);
  clear_tile<PRODUCTS + turn>();
  multiply_signed_signed<PRODUCTS + turn, ACTIVATIONS + turn, WEIGHTS + turn>();
}

// A stack of activations times an expanded panel. While the products of one part are added, the
// next are made, and of what lies at `soon`, if anything, a group is fetched.
template <class Format>
void multiply_stack(const ExpandedGroup* weights, const ActivationGroup* stack, int64_t groups,
                    const PanelOutput& output, const uint8_t* soon) {
  constexpr auto rows = all_rows(std::make_integer_sequence<int, STACK>());
  constexpr int last = PARTS<Format> - 1;
  alignas(64) int32_t products[2][STACK][LANES];
  Floats sums[STACK];
  clear_sums(sums, rows);
  multiply_part<Format, 0, 0>(*weights, *stack);
  store_tile<PRODUCTS>(products[0], 4 * LANES);
  for (int64_t g = 0; g < groups - 1; g++, weights++, stack++) {
    if (soon != nullptr) prefetch(soon + g * Format::GROUP_BYTES, Format::GROUP_BYTES);
    if constexpr (last == 1) {
      multiply_part<Format, 1, 1>(*weights, *stack);
      add_part<Format, 0>(sums, products[0], *weights, *stack, rows);
      store_tile<PRODUCTS + 1>(products[1], 4 * LANES);
    }
    multiply_part<Format, 0, 0>(weights[1], stack[1]);
    add_part<Format, last>(sums, products[last], *weights, *stack, rows);
    store_tile<PRODUCTS>(products[0], 4 * LANES);
  }
  if constexpr (last == 1) {
    multiply_part<Format, 1, 1>(*weights, *stack);
    add_part<Format, 0>(sums, products[0], *weights, *stack, rows);
    store_tile<PRODUCTS + 1>(products[1], 4 * LANES);
  }
  add_part<Format, last>(sums, products[last], *weights, *stack, rows);
  Floats out[STACK];
  copy_sums(out, sums, rows);
  write_panel<STACK>(out, output);
}

// As `multiply_panel`, on tiles of `shapes_of_parts`; `room` holds a panel.
template <class Format>
void multiply_panel_on_tiles(const uint8_t* panel, const ActivationGroup* stack, int64_t groups,
                             PanelOutput output, ExpandedGroup* room) {
  expand_panel<Format>(room, panel, groups);
  for (; output.num_rows > 0; stack += groups, output.skip(STACK)) {
    const uint8_t* soon = output.ahead == 0 ? nullptr : panel + output.ahead;
    multiply_stack<Format>(room, stack, groups, output, soon);
  }
}

// What multiplies panels of a format on tiles, and how many parts its groups have.
struct OnTiles {
  void (*multiply)(const uint8_t*, const ActivationGroup*, int64_t, PanelOutput, ExpandedGroup*);
  int parts;
};

template <class Format>
constexpr OnTiles on_tiles() {
  return {multiply_panel_on_tiles<Format>, PARTS<Format>};
}

}  // namespace octavo

#else

namespace octavo {

struct OnTiles {};

template <class Format>
constexpr OnTiles on_tiles() {
  return {};
}

}  // namespace octavo

#endif
