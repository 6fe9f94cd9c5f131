// Low-rank changes of linear layers: the products.
#include "lora.h"

#include <algorithm>
#include <type_traits>

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
// Tokens that meet the same factors at once.
constexpr int64_t TOKENS = 4;

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
  for (int64_t i = 0; i < a.columns; i += LANES, factors += RANKS * LANES) {
    for (int64_t k = 0; k < RANKS * LANES * int64_t(sizeof(Element)); k += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(factors) + AHEAD_BYTES + k);
    for (int t = 0; t < tokens; t++) {
      const Floats values = load_first(x[t] + i, a.columns - i);
      for (int k = 0; k < RANKS; k++)
        sums[t][k] = fma(read(factors + k * LANES), values, sums[t][k]);
    }
  }
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

// Calls work(count, element) with a number of tokens and an element of factors as constants.
template <class Work>
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
    default: return with_element(std::integral_constant<int, TOKENS>());
  }
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
    num_pieces_ += (arguments.batch->segments[s].num_tokens + TOKENS - 1) / TOKENS * groups_;
}

const LowRank* LowRankChange::change_of(const AdapterSegment& segment) const {
  const Adapt& a = arguments_;
  if (segment.slot >= a.num_slots || a.by_slot[segment.slot].rank == 0) return nullptr;
  return &a.by_slot[segment.slot];
}

// Calls work(number, change, block, number of tokens) for each block of tokens; the ranks of
// token i of a segment stand at (tokens of the segments before + i) * max_rank.
template <class Work>
void LowRankChange::each_block(Work&& work) const {
  const Adapt& a = arguments_;
  float* ranks = ranks_;
  int64_t number = 0;
  for (int64_t s = 0; s < a.batch->count; s++) {
    const AdapterSegment& segment = a.batch->segments[s];
    const LowRank* change = change_of(segment);
    for (int64_t i = 0; i < segment.num_tokens; i += TOKENS, number++) {
      const TokenBlock block{segment.tokens + i, segment.scales + i, ranks + i * a.max_rank,
                             a.max_rank};
      if (change != nullptr)
        work(number, *change, block, std::min(TOKENS, segment.num_tokens - i));
    }
    ranks += segment.num_tokens * a.max_rank;
  }
}

void LowRankChange::compute_ranks(int64_t piece) const {
  const int64_t wanted = piece / groups_, group = piece % groups_;
  each_block([&](int64_t number, const LowRank& change, const TokenBlock& block, int64_t tokens) {
    if (number != wanted || group * RANKS >= change.rank) return;
    const int64_t size = (arguments_.columns + LANES - 1) / LANES * RANKS * LANES;
    dispatch(tokens, change.is_half, [&](auto count, auto element) {
      using Element = decltype(element);
      const Element* factors = static_cast<const Element*>(change.a) + group * size;
      multiply_group<count>(block, arguments_, factors, group);
    });
  });
}

void LowRankChange::prefetch(int64_t first, int64_t last) const {
  const AdapterSegments& batch = *arguments_.batch;
  // with more than one segment the adapters would push one another out
  if (batch.count != 1) return;
  const LowRank* change = change_of(batch.segments[0]);
  if (change == nullptr) return;
  const int64_t element_bytes = change->is_half ? sizeof(uint16_t) : sizeof(float);
  each_piece(*change, first / LANES, (last + LANES - 1) / LANES,
             [&](const LowRankPiece& piece, int64_t from, int64_t to) {
               const int64_t bytes = piece.rank * LANES * element_bytes;
               const char* b = static_cast<const char*>(piece.b);
               for (int64_t i = (from - piece.first_panel) * bytes;
                    i < (to - piece.first_panel) * bytes; i += 64)
                 __builtin_prefetch(b + i);
             });
}

void LowRankChange::add(int64_t first, int64_t last) const {
  each_block([&](int64_t, const LowRank& change, const TokenBlock& block, int64_t tokens) {
    each_piece(change, first / LANES, (last + LANES - 1) / LANES,
               [&](const LowRankPiece& piece, int64_t from, int64_t to) {
                 dispatch(tokens, change.is_half, [&](auto count, auto element) {
                   add_piece<count, decltype(element)>(block, arguments_, piece, from, to);
                 });
               });
  });
}

void adapt(const Adapt& a, Worker& worker) {
  const LowRankChange change(a, static_cast<float*>(worker.shared));
  if (change.num_pieces() == 0) return;
  worker.share(change.num_pieces(), [&](int64_t piece) { change.compute_ranks(piece); });
  worker.share((a.outputs + COLUMNS - 1) / COLUMNS, [&](int64_t number) {
    change.add(number * COLUMNS, std::min(a.outputs, (number + 1) * COLUMNS));
  });
}

}  // namespace octavo
