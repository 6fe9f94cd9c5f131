// Linear layers over packed weights, in both modes.
//
// Knows panels, tiles and how they are dealt out. Does not know what a product is (linear.h).
#include "linear.h"

#include <algorithm>

#include "linear_exact.h"

extern "C" int64_t octavo_panel_bytes(int64_t format, int64_t columns);

namespace octavo {

namespace {

// Activations that are gone through for one panel: as much as stays in a second-level cache.
constexpr int64_t CACHED_BYTES = 160 * 1024;
// How far ahead weights are fetched that are used once.
constexpr int64_t AHEAD_BYTES = 2048;

using FastProduct = void (*)(int64_t, const uint8_t*, const ActivationGroup*, int64_t,
                             const PanelOutput&);
using ExactProduct = void (*)(int64_t, const uint8_t*, const ExactGroup*, int64_t,
                              const PanelOutput&);
using DecodeRow = void (*)(const uint8_t*, int64_t, int64_t, float*);

// What is known of a format, in the order of `octavo_kernels.cpu.packing`. Floats have no fast
// product.
struct FormatEntry {
  int64_t header, groups, group_bytes;
  FastProduct fast;
  ExactProduct exact;
  DecodeRow decode_row;
};

template <class Format>
constexpr FormatEntry coded() {
  return {Format::HEADER, Format::GROUPS, Format::GROUP_BYTES, multiply_tile<Format>,
          multiply_tile_exact<Expanded<Format>>, decode_row<Expanded<Format>>};
}
template <class Format>
constexpr FormatEntry floats() {
  return {Format::HEADER, Format::GROUPS, Format::GROUP_BYTES, nullptr,
          multiply_tile_exact<Format>, decode_row<Format>};
}

constexpr FormatEntry FORMATS[] = {
    coded<Q4_0>(), coded<Q4_1>(), coded<Q5_0>(), coded<Q5_1>(),   coded<Q8_0>(), coded<Q4_K>(),
    coded<Q5_K>(), coded<Q6_K>(), coded<IQ4_NL>(), floats<F32>(), floats<F16>(), floats<BF16>(),
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Lays out the rows of x in tiles: shared between threads by tile and by range of groups.
template <class Group, void (*lay_out)(Group*, const float*, int64_t, int64_t, int64_t, int64_t)>
const Group* tiles_of(const Linear& a, Worker& worker, int64_t rows, int64_t groups) {
  Group* tiles = static_cast<Group*>(worker.shared);
  if (a.is_laid_out) return tiles;
  const int64_t num_tiles = divide_up(rows, TILE);
  // a few groups are too little work to be worth another thread's while
  const int64_t parts = std::max<int64_t>(1, std::min(4 / num_tiles, groups / 16));
  worker.share(num_tiles * parts, [&](int64_t piece) {
    const int64_t tile = piece / parts, part = piece % parts;
    for (int64_t g = groups * part / parts; g < groups * (part + 1) / parts; g++)
      lay_out(tiles + tile * groups + g, a.x + g * GROUP, a.x_stride, tile * TILE, rows,
              a.columns - g * GROUP);
  });
  return tiles;
}

// Multiplies tiles by panels: a piece is a range of panels and a range of tiles.
template <class Group, class Product>
void multiply(const Linear& a, Worker& worker, const Group* tiles, int64_t rows, int64_t groups,
              Product product) {
  const FormatEntry& format = FORMATS[a.format];
  const int64_t panel_bytes =
      groups / format.groups * format.header + groups * format.group_bytes;
  const int64_t num_panels = divide_up(a.outputs, LANES), num_tiles = divide_up(rows, TILE);
  const int64_t tile_bytes = groups * int64_t(sizeof(Group));
  const int64_t tiles_at_once = std::max<int64_t>(1, CACHED_BYTES / tile_bytes);
  const int64_t tile_ranges = divide_up(num_tiles, tiles_at_once);
  const int64_t wanted = divide_up(8 * worker.num_threads, tile_ranges);
  const int64_t panels_at_once = std::max<int64_t>(1, num_panels / wanted);
  const int64_t panel_ranges = divide_up(num_panels, panels_at_once);
  worker.share(panel_ranges * tile_ranges, [&](int64_t piece) {
    const int64_t first_tile = piece / panel_ranges * tiles_at_once;
    const int64_t last_tile = std::min(num_tiles, first_tile + tiles_at_once);
    const int64_t first_panel = piece % panel_ranges * panels_at_once;
    const int64_t last_panel = std::min(num_panels, first_panel + panels_at_once);
    for (int64_t panel = first_panel; panel < last_panel; panel++) {
      const int64_t output = panel * LANES;
      for (int64_t tile = first_tile; tile < last_tile; tile++) {
        const int64_t row = tile * TILE, count = std::min<int64_t>(TILE, rows - row);
        // while the first tile is computed, the weights come in that the next panel wants
        const int64_t ahead = num_tiles == 1 ? AHEAD_BYTES : tile == first_tile ? panel_bytes : 0;
        const PanelOutput target{a.out + row * a.out_stride + output, a.out_stride,
                                 a.bias == nullptr ? nullptr : a.bias + output,
                                 a.outputs - output, count, ahead};
        product(count, a.weight + panel * panel_bytes, tiles + tile * groups, groups, target);
      }
    }
  });
}

}  // namespace

void quantize_tile(ActivationGroup* out, const float* x, int64_t stride, int64_t first,
                   int64_t rows, int64_t columns) {
  constexpr int parts = GROUP / LANES;
  for (int64_t i = 0; i < TILE; i++) {
    if (first + i >= rows) {
      std::memset(out->codes[i], 0, GROUP);
      out->scale[i] = out->sum[i] = 0;
      out->codes_sum[0][i] = out->codes_sum[1][i] = 0;
      continue;
    }
    const float* row = x + (first + i) * stride;
    Floats values[parts], top(0.0f), poison(0.0f);
    for (int p = 0; p < parts; p++) {
      values[p] = load_first(row + p * LANES, columns - p * LANES);
      top = max(top, abs(values[p]));
      poison = fma(values[p], Floats(0.0f), poison);
    }
    const float largest_value = largest(top), nothing = sum(poison);
    int32_t sums[2] = {0, 0};
    if (nothing == 0) {
      // below this the inverse is no float, and the products would be none either
      const float inverse = largest_value > 1e-35f ? 127.0f / largest_value : 0.0f;
      for (int p = 0; p < parts; p++) {
        const Ints codes = to_ints(values[p] * Floats(inverse));
        store_bytes(out->codes[i] + p * LANES, codes);
        sums[p * 2 / parts] += sum(codes);
      }
    } else {  // NaN: what is no number has no codes
      std::memset(out->codes[i], 0, GROUP);
    }
    out->scale[i] = largest_value / 127.0f + nothing;
    out->sum[i] = out->scale[i] * float(sums[0] + sums[1]);
    out->codes_sum[0][i] = sums[0];
    out->codes_sum[1][i] = sums[1];
  }
}

void copy_tile(ExactGroup* out, const float* x, int64_t stride, int64_t first, int64_t rows,
               int64_t columns) {
  for (int64_t i = 0; i < TILE; i++) {
    Floats total(0.0f);
    for (int p = 0; p < GROUP; p += LANES) {
      const int64_t live = first + i < rows ? columns - p : 0;
      const Floats values = load_first(x + (first + i) * stride + p, live);
      store(out->values[i] + p, values);
      total = total + values;
    }
    out->sum[i] = sum(total);
  }
}

void linear(const Linear& a, Worker& worker) {
  const int64_t rows = *a.rows;
  if (rows <= 0) return;
  const FormatEntry& format = FORMATS[a.format];
  const int64_t groups = divide_up(divide_up(a.columns, GROUP), format.groups) * format.groups;
  if (a.is_exact || format.fast == nullptr) {
    const ExactGroup* tiles = tiles_of<ExactGroup, copy_tile>(a, worker, rows, groups);
    multiply(a, worker, tiles, rows, groups, format.exact);
  } else {
    const ActivationGroup* tiles =
        tiles_of<ActivationGroup, quantize_tile>(a, worker, rows, groups);
    multiply(a, worker, tiles, rows, groups, format.fast);
  }
}

void embedding(const Embedding& a, Worker& worker) {
  const FormatEntry& format = FORMATS[a.format];
  const int64_t bytes = octavo_panel_bytes(a.format, a.columns);
  worker.share(*a.rows, [&](int64_t i) {
    const int64_t id = a.ids[i];
    format.decode_row(a.weight + id / LANES * bytes, id % LANES, a.columns, a.out + i * a.columns);
  });
}

}  // namespace octavo

using namespace octavo;

// Bytes of a panel of so many columns.
extern "C" int64_t octavo_panel_bytes(int64_t format, int64_t columns) {
  const FormatEntry& entry = FORMATS[format];
  const int64_t groups = divide_up(divide_up(columns, GROUP), entry.groups) * entry.groups;
  return groups / entry.groups * entry.header + groups * entry.group_bytes;
}

// Shared memory that `linear` needs for so many rows.
extern "C" int64_t octavo_linear_bytes(int64_t rows, int64_t columns) {
  const int64_t groups = divide_up(columns, 8 * GROUP) * 8;
  const int64_t size = std::max(sizeof(ActivationGroup), sizeof(ExactGroup));
  return divide_up(rows, TILE) * groups * size;
}
