// The products of linear.h on AMX: a tile of activations times a panel is one instruction a group.
//
// Integers are exact, and floats are summed in the order of linear.h, so that the bits are the
// same. Codes are expanded to bytes once for all rows, which pays where there is more than a TILE.
// Knows packed weights and activations. Does not know files.
#pragma once

#include "linear.h"

#if defined(__AMX_INT8__) && defined(__linux__) && defined(__x86_64__)
#define OCTAVO_HAS_TILES 1

#include <sys/syscall.h>
#include <unistd.h>

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

// The intrinsics of some compilers do not say that they read memory.
template <int number>
inline void load_tile(const void* first, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(first), "r"(stride), "i"(number) : "memory");
}
template <int number>
inline void store_tile(void* first, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(first), "r"(stride), "i"(number) : "memory");
}
template <int number>
inline void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(number));
}
// products += activations * weights, of signed bytes
template <int products, int activations, int weights>
inline void multiply_tiles() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(products), "i"(activations),
               "i"(weights));
}

// Whether the system lets this process use tiles: it has to be asked once.
inline bool has_tiles() {
  constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
  static const bool is_allowed = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
  return is_allowed;
}

// Shapes the tile registers of this thread, for groups in `parts` parts; gives them back.
class TileShapes {
 public:
  explicit TileShapes(int parts) {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shapes;
    for (int i = 0; i < 2; i++) {
      shapes.rows[PRODUCTS + i] = shapes.rows[ACTIVATIONS + i] = STACK;
      shapes.row_bytes[PRODUCTS + i] = 4 * LANES;
      shapes.row_bytes[ACTIVATIONS + i] = uint16_t(GROUP / parts);
      shapes.rows[WEIGHTS + i] = uint8_t(VECTORS / parts);
      shapes.row_bytes[WEIGHTS + i] = 4 * LANES;
    }
    asm volatile("ldtilecfg %0" ::"m"(shapes));
  }
  ~TileShapes() { asm volatile("tilerelease"); }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;
};

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
  multiply_tiles<PRODUCTS + turn, ACTIVATIONS + turn, WEIGHTS + turn>();
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

// As `multiply_panel`, within TileShapes; `room` holds a panel.
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
