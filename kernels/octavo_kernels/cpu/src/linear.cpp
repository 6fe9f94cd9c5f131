// Linear layers over packed weights, in both modes.
//
// Knows panels, tiles and how they are dealt out, and that adapters may change outputs. Does not
// know what a product is (linear.h), nor a change (lora.h).
#include "linear.h"

#include <algorithm>

#include "linear_exact.h"
#include "linear_tiles.h"
#include "lora.h"
#include "sizes.h"

extern "C" int64_t octavo_panel_bytes(int64_t format, int64_t columns);

namespace octavo {

namespace {

// Activations that are gone through for one panel: as much as stays in a second-level cache.
constexpr int64_t CACHED_BYTES = 160 * 1024;
// How far ahead weights are fetched that are used once.
constexpr int64_t AHEAD_BYTES = 2048;

template <class Group>
using Product = void (*)(const uint8_t*, const Group*, int64_t, PanelOutput);
using DecodeRow = void (*)(const uint8_t*, int64_t, int64_t, float*);

// What is known of a format, in the order of `octavo_kernels.cpu.packing`. Floats have no fast
// product.
struct FormatEntry {
  int64_t header, groups, group_bytes;
  Product<ActivationGroup> fast;
  Product<ExactGroup> exact;
  DecodeRow decode_row;
  OnTiles on_tiles;
};

template <class Format>
constexpr FormatEntry coded() {
  return {Format::HEADER, Format::GROUPS, Format::GROUP_BYTES, multiply_panel<Format>,
          multiply_panel_exact<Expanded<Format>>, decode_row<Expanded<Format>>,
          on_tiles<Format>()};
}
template <class Format>
constexpr FormatEntry floats() {
  return {Format::HEADER, Format::GROUPS, Format::GROUP_BYTES, nullptr,
          multiply_panel_exact<Format>, decode_row<Format>, {}};
}

constexpr FormatEntry FORMATS[] = {
    coded<Q4_0>(), coded<Q4_1>(), coded<Q5_0>(), coded<Q5_1>(),   coded<Q8_0>(), coded<Q4_K>(),
    coded<Q5_K>(), coded<Q6_K>(), coded<IQ4_NL>(), floats<F32>(), floats<F16>(), floats<BF16>(),
};

// A low-rank change of outputs that begin at `first_output` of what it changes.
struct Change {
  const LowRankChange& ranks;
  int64_t first_output;
  bool has_ranks;

  int64_t num_pieces() const { return has_ranks ? 0 : ranks.num_pieces(); }
  void prefetch(int64_t first, int64_t last) const {
    ranks.prefetch(first_output + first, first_output + last);
  }
  void add(int64_t first, int64_t last) const {
    ranks.add(first_output + first, first_output + last);
  }
};

// Lays out the rows of x in stacks: shared between threads by stack and by range of groups. Along
// with that, what changes outputs has its ranks computed, of which nothing is wanted before.
template <class Group, void (*lay_out)(Group*, const float*, int64_t, int64_t, int64_t, int64_t)>
const Group* stacks_of(const Linear& a, Worker& worker, int64_t rows, int64_t groups,
                       const Change* change) {
  Group* stacks = static_cast<Group*>(worker.shared);
  const int64_t num_stacks = divide_up(rows, STACK);
  // a few groups are too little work to be worth another thread's while
  const int64_t parts = std::max<int64_t>(1, std::min(4 / num_stacks, groups / 16));
  const int64_t own = a.is_laid_out ? 0 : num_stacks * parts;
  const int64_t pieces = own + (change == nullptr ? 0 : change->num_pieces());
  if (pieces == 0) return stacks;
  worker.share(pieces, [&](int64_t piece) {
    if (piece >= own) return change->ranks.compute_ranks(piece - own);
    const int64_t stack = piece / parts, part = piece % parts;
    for (int64_t g = groups * part / parts; g < groups * (part + 1) / parts; g++)
      lay_out(stacks + stack * groups + g, a.x + g * GROUP, a.x_stride, stack * STACK, rows,
              a.columns - g * GROUP);
  });
  return stacks;
}

// Multiplies stacks by panels: a piece is a range of panels and a range of stacks. `begin` is
// called for each piece, and gives what multiplies a panel.
template <class Group, class Begin>
void multiply(const Linear& a, Worker& worker, const Group* stacks, int64_t rows, int64_t groups,
              const Change* change, Begin&& begin) {
  const FormatEntry& format = FORMATS[a.format];
  const int64_t panel_bytes =
      groups / format.groups * format.header + groups * format.group_bytes;
  const int64_t num_panels = divide_up(a.outputs, LANES), num_stacks = divide_up(rows, STACK);
  const int64_t stack_bytes = groups * int64_t(sizeof(Group));
  const int64_t stacks_at_once = std::max<int64_t>(1, CACHED_BYTES / stack_bytes);
  const int64_t stack_ranges = divide_up(num_stacks, stacks_at_once);
  const int64_t wanted = divide_up(8 * worker.num_threads, stack_ranges);
  const int64_t panels_at_once = std::max<int64_t>(1, num_panels / wanted);
  const int64_t panel_ranges = divide_up(num_panels, panels_at_once);
  // while the first tile is computed, the weights come in that the next panel wants
  const int64_t ahead = rows <= TILE ? AHEAD_BYTES : panel_bytes;
  worker.share(panel_ranges * stack_ranges, [&](int64_t piece) {
    const int64_t first_stack = piece / panel_ranges * stacks_at_once;
    const int64_t last_stack = std::min(num_stacks, first_stack + stacks_at_once);
    const int64_t row = first_stack * STACK, num_rows = std::min(rows, last_stack * STACK) - row;
    const int64_t first_panel = piece % panel_ranges * panels_at_once;
    const int64_t last_panel = std::min(num_panels, first_panel + panels_at_once);
    // with all rows made here, the change finds them in the cache of this thread
    const bool has_change = change != nullptr && stack_ranges == 1;
    {
      const auto multiply_panel = begin();
      for (int64_t panel = first_panel; panel < last_panel; panel++) {
        const int64_t output = panel * LANES;
        if (has_change) change->prefetch(output, output + LANES);
        const PanelOutput target{a.out + row * a.out_stride + output, a.out_stride,
                                 a.bias == nullptr ? nullptr : a.bias + output,
                                 a.outputs - output, num_rows, ahead};
        multiply_panel(a.weight + panel * panel_bytes, stacks + first_stack * groups, groups,
                       target);
      }
    }
    if (has_change) change->add(first_panel * LANES, std::min(a.outputs, last_panel * LANES));
  });
  if (change == nullptr || stack_ranges == 1) return;
  worker.share(panel_ranges, [&](int64_t piece) {
    const int64_t first = piece * panels_at_once * LANES;
    change->add(first, std::min(a.outputs, first + panels_at_once * LANES));
  });
}

void multiply_fast(const Linear& a, Worker& worker, int64_t rows, int64_t groups,
                   const Change* change) {
  const FormatEntry& format = FORMATS[a.format];
  const ActivationGroup* stacks =
      stacks_of<ActivationGroup, quantize_stack>(a, worker, rows, groups, change);
#ifdef OCTAVO_HAS_TILES
  if (rows > TILE && has_tiles()) {
    multiply(a, worker, stacks, rows, groups, change, [&] {
      ExpandedGroup* room = worker.scratch().get<ExpandedGroup>(groups);
      const auto shapes = shapes_of_parts(format.on_tiles.parts);
      return [&, room, tiles = ShapedTiles(shapes)](auto... arguments) {
        format.on_tiles.multiply(arguments..., room);
      };
    });
    return;
  }
#endif
  multiply(a, worker, stacks, rows, groups, change, [&] { return format.fast; });
}

void multiply_rows(const Linear& a, Worker& worker, const Change* change) {
  const int64_t rows = *a.rows;
  if (rows <= 0) return;
  const FormatEntry& format = FORMATS[a.format];
  const int64_t groups = divide_up(divide_up(a.columns, GROUP), format.groups) * format.groups;
  if (!a.is_exact && format.fast != nullptr)
    return multiply_fast(a, worker, rows, groups, change);
  const ExactGroup* stacks =
      stacks_of<ExactGroup, copy_stack>(a, worker, rows, groups, change);
  multiply(a, worker, stacks, rows, groups, change, [&] { return format.exact; });
}

}  // namespace

void linear(const Linear& a, Worker& worker) { multiply_rows(a, worker, nullptr); }

void adapted_linear(const Linear& a, Worker& worker, const LowRankChange& ranks,
                    int64_t first_output, bool has_ranks) {
  const Change change{ranks, first_output, has_ranks};
  multiply_rows(a, worker, &change);
}

void quantize_stack(ActivationGroup* out, const float* x, int64_t stride, int64_t first,
                    int64_t rows, int64_t columns) {
  constexpr int parts = GROUP / LANES;
  for (int64_t i = 0; i < STACK && first + i < rows; i++) {
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

void copy_stack(ExactGroup* out, const float* x, int64_t stride, int64_t first, int64_t rows,
                int64_t columns) {
  for (int64_t i = 0; i < STACK && first + i < rows; i++) {
    Floats total(0.0f);
    for (int p = 0; p < GROUP; p += LANES) {
      const Floats values = load_first(x + (first + i) * stride + p, columns - p);
      store(out->values[i] + p, values);
      total = total + values;
    }
    out->sum[i] = sum(total);
  }
}

int64_t linear_bytes(int64_t rows, int64_t columns) {
  const int64_t groups = divide_up(columns, 8 * GROUP) * 8;
  const int64_t size = std::max(sizeof(ActivationGroup), sizeof(ExactGroup));
  return divide_up(rows, STACK) * groups * size;
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
  return linear_bytes(rows, columns);
}
