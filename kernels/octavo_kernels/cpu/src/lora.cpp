// Low-rank changes of linear layers: the products.
#include "lora.h"

#include <algorithm>
#include <type_traits>

#include "sizes.h"
#include "vectors.h"

namespace octavo {

namespace {

// Columns of a result that one piece of work changes where there is no other work on them.
constexpr int64_t COLUMNS = 8 * LANES;
// Ranks that are summed at once: a group, and one piece of work.
constexpr int64_t RANKS = 4;
// How far ahead factors are fetched.
constexpr int64_t AHEAD_BYTES = 1024;
// Panels of outputs that are summed at once.
constexpr int64_t PANELS_AT_ONCE = 2;
// Tokens that meet the same factors at once, in registers: for ranks, and for outputs if there are
// so many; and those of one piece of work, in turns, while the factors are in the cache.
constexpr int64_t TOKENS = 4, MANY_TOKENS = 8, TOKENS_IN_TURNS = 16;
// With more adapters than this in a step, their factors would push one another out of the cache.
constexpr int64_t MOST_FETCHED = 4;

Floats read(const float* p) { return load(p); }
Floats read(const uint16_t* p) { return load_half(p); }

// Some tokens of a segment: their numbers, and where the ranks of each begin.
struct TokenBlock {
  const int64_t* tokens;
  const float* scales;
  float* ranks;
  int64_t stride;  // between tokens' ranks
};

// The ranks of a group for so many tokens: scale * a x. One chain of sums each, whatever `tokens`.
// `factors`: the group's, [vectors of columns, RANKS, LANES].
template <int tokens, class Element>
void multiply_group(const TokenBlock& block, const Adapt& a, const Element* factors, int64_t group) {
  Floats sums[tokens][RANKS];
  const float* x[tokens];
  for (int t = 0; t < tokens; t++) {
    x[t] = a.x + block.tokens[t] * a.x_stride;
    for (int k = 0; k < RANKS; k++) sums[t][k] = Floats(0.0f);
  }
  const auto add_vector = [&](auto&& values_of) {
    for (int64_t k = 0; k < RANKS * LANES * int64_t(sizeof(Element)); k += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(factors) + AHEAD_BYTES + k);
    Floats read_once[RANKS];
#pragma GCC unroll 4
    for (int k = 0; k < RANKS; k++) read_once[k] = read(factors + k * LANES);
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) {
      const Floats values = values_of(x[t]);
#pragma GCC unroll 4
      for (int k = 0; k < RANKS; k++) sums[t][k] = fma(read_once[k], values, sums[t][k]);
    }
    factors += RANKS * LANES;
  };
  int64_t i = 0;
  for (; i + LANES <= a.columns; i += LANES)
    add_vector([&](const float* row) { return load(row + i); });
  if (i < a.columns)
    add_vector([&](const float* row) { return load_first(row + i, a.columns - i); });
  for (int t = 0; t < tokens; t++)
    for (int k = 0; k < RANKS; k++)
      block.ranks[t * block.stride + group * RANKS + k] = block.scales[t] * sum(sums[t][k]);
}

// Adds what the ranks of so many tokens make of `count` panels from `panel` on.
template <int count, int tokens, class Element>
void add_panels(const TokenBlock& block, const Adapt& a, const LowRankPiece& piece,
                int64_t panel) {
  const int64_t panel_size = piece.rank * LANES;
  const Element* b = static_cast<const Element*>(piece.b) + (panel - piece.first_panel) * panel_size;
  const float* ranks = block.ranks + piece.first_rank;
  Floats totals[tokens][count];
  for (int t = 0; t < tokens; t++)
    for (int k = 0; k < count; k++) totals[t][k] = Floats(0.0f);
  for (int64_t r = 0; r < piece.rank; r++) {
    Floats factors[count];
    for (int k = 0; k < count; k++) factors[k] = read(b + k * panel_size + r * LANES);
    for (int t = 0; t < tokens; t++) {
      const Floats rank(ranks[t * block.stride + r]);
      for (int k = 0; k < count; k++) totals[t][k] = fma(rank, factors[k], totals[t][k]);
    }
  }
  for (int t = 0; t < tokens; t++)
    for (int k = 0; k < count; k++) {
      const int64_t column = (panel + k) * LANES, live = a.outputs - column;
      float* out = a.out + block.tokens[t] * a.out_stride + column;
      store_first(out, load_first(out, live) + totals[t][k], live);
    }
}

// Adds what the ranks of so many tokens make of panels [first, last).
template <int tokens, class Element>
void add_piece(const TokenBlock& block, const Adapt& a, const LowRankPiece& piece, int64_t first,
               int64_t last) {
  int64_t panel = first;
  for (; panel + PANELS_AT_ONCE <= last; panel += PANELS_AT_ONCE)
    add_panels<PANELS_AT_ONCE, tokens, Element>(block, a, piece, panel);
  for (; panel < last; panel++) add_panels<1, tokens, Element>(block, a, piece, panel);
}

// Calls work(count, element) with a number of tokens, `most` or at most TOKENS, and an element of
// factors as constants.
template <int64_t most, class Work>
void dispatch(int64_t tokens, bool is_half, Work&& work) {
  const auto with_element = [&](auto count) {
    if (is_half)
      work(count, uint16_t());
    else
      work(count, float());
  };
  switch (tokens) {
    case 1: return with_element(std::integral_constant<int, 1>());
    case 2: return with_element(std::integral_constant<int, 2>());
    case 3: return with_element(std::integral_constant<int, 3>());
    case TOKENS: return with_element(std::integral_constant<int, TOKENS>());
    default: return with_element(std::integral_constant<int, most>());
  }
}

// Pieces of work that the tokens of a segment are.
int64_t turns_of(const AdapterSegment& segment) {
  return divide_up(segment.num_tokens, TOKENS_IN_TURNS);
}

// Calls work(piece, first, last) for the pieces of a change that lie in panels [first, last).
template <class Work>
void each_piece(const LowRank& change, int64_t first, int64_t last, Work&& work) {
  for (int64_t p = 0; p < change.num_pieces; p++) {
    const LowRankPiece& piece = change.pieces[p];
    const int64_t from = std::max(first, piece.first_panel);
    const int64_t to = std::min(last, piece.first_panel + piece.num_panels);
    if (from < to) work(piece, from, to);
  }
}

}  // namespace

LowRankChange::LowRankChange(const Adapt& arguments, float* ranks)
    : arguments_(arguments), ranks_(ranks), groups_(arguments.max_rank / RANKS) {
  for (int64_t s = 0; s < arguments.batch->count; s++)
    num_pieces_ += turns_of(arguments.batch->segments[s]) * groups_;
}

const LowRank* LowRankChange::change_of(const AdapterSegment& segment) const {
  const Adapt& a = arguments_;
  if (segment.slot >= a.num_slots || a.by_slot[segment.slot].rank == 0) return nullptr;
  return &a.by_slot[segment.slot];
}

// Calls work(change, block, number of tokens) for each block of tokens [first, last) of a segment,
// whose ranks stand at `ranks`, max_rank for each token. Blocks are of `most` tokens, the last ones
// of TOKENS at most.
template <class Work>
void LowRankChange::each_block(const AdapterSegment& segment, int64_t first, int64_t last,
                               int64_t most, float* ranks, Work&& work) const {
  const LowRank* change = change_of(segment);
  if (change == nullptr) return;
  const int64_t stride = arguments_.max_rank;
  for (int64_t i = first, tokens; i < last; i += tokens) {
    tokens = last - i >= most ? most : std::min(TOKENS, last - i);
    const TokenBlock block{segment.tokens + i, segment.scales + i, ranks + i * stride, stride};
    work(*change, block, tokens);
  }
}

// Calls work(segment, its ranks) for each segment.
template <class Work>
void LowRankChange::each_segment(Work&& work) const {
  float* ranks = ranks_;
  for (int64_t s = 0; s < arguments_.batch->count; s++) {
    const AdapterSegment& segment = arguments_.batch->segments[s];
    work(segment, ranks);
    ranks += segment.num_tokens * arguments_.max_rank;
  }
}

void LowRankChange::compute_ranks(int64_t piece) const {
  int64_t turn = piece / groups_;
  const int64_t group = piece % groups_;
  const int64_t size = divide_up(arguments_.columns, LANES) * RANKS * LANES;
  each_segment([&](const AdapterSegment& segment, float* ranks) {
    const int64_t turns = turns_of(segment), first = turn * TOKENS_IN_TURNS;
    turn -= turns;
    if (first < 0 || turn >= 0) return;  // of another segment
    const int64_t last = std::min(segment.num_tokens, first + TOKENS_IN_TURNS);
    const auto work = [&](const LowRank& change, const TokenBlock& block, int64_t tokens) {
      if (group * RANKS >= change.rank) return;
      dispatch<TOKENS>(tokens, change.is_half, [&](auto count, auto element) {
        using Element = decltype(element);
        const Element* factors = static_cast<const Element*>(change.a) + group * size;
        multiply_group<count>(block, arguments_, factors, group);
      });
    };
    each_block(segment, first, last, TOKENS, ranks, work);
  });
}

void LowRankChange::prefetch(int64_t first, int64_t last) const {
  const AdapterSegments& batch = *arguments_.batch;
  if (batch.count > MOST_FETCHED) return;
  for (int64_t s = 0; s < batch.count; s++) {
    const LowRank* change = change_of(batch.segments[s]);
    if (change == nullptr) continue;
    const int64_t element_bytes = change->is_half ? sizeof(uint16_t) : sizeof(float);
    each_piece(*change, first / LANES, divide_up(last, LANES),
               [&](const LowRankPiece& piece, int64_t from, int64_t to) {
                 const int64_t bytes = piece.rank * LANES * element_bytes;
                 const char* b = static_cast<const char*>(piece.b);
                 for (int64_t i = (from - piece.first_panel) * bytes;
                      i < (to - piece.first_panel) * bytes; i += 64)
                   __builtin_prefetch(b + i);
               });
  }
}

void LowRankChange::add(int64_t first, int64_t last) const {
  const int64_t first_panel = first / LANES, last_panel = divide_up(last, LANES);
  each_segment([&](const AdapterSegment& segment, float* ranks) {
    const auto work = [&](const LowRank& change, const TokenBlock& block, int64_t tokens) {
      dispatch<MANY_TOKENS>(tokens, change.is_half, [&](auto count, auto element) {
        each_piece(change, first_panel, last_panel,
                   [&](const LowRankPiece& piece, int64_t from, int64_t to) {
                     add_piece<count, decltype(element)>(block, arguments_, piece, from, to);
                   });
      });
    };
    each_block(segment, 0, segment.num_tokens, MANY_TOKENS, ranks, work);
  });
}

void adapt(const Adapt& a, Worker& worker) {
  const LowRankChange change(a, static_cast<float*>(worker.shared));
  if (change.num_pieces() == 0) return;
  worker.share(change.num_pieces(), [&](int64_t piece) { change.compute_ranks(piece); });
  worker.share(divide_up(a.outputs, COLUMNS), [&](int64_t number) {
    change.add(number * COLUMNS, std::min(a.outputs, (number + 1) * COLUMNS));
  });
}

}  // namespace octavo
