// Low-rank changes of linear layers: out += scale * b (a x), for the tokens of each adapter.
//
// First the ranks of every token, then columns of the result: a column is one thread's, which adds
// the adapters' changes in the order of the segments. A token's result depends on its own adapters
// alone. Knows factors and which tokens they change. Does not know what an adapter is.
#include <algorithm>
#include <type_traits>

#include "operations.h"
#include "vectors.h"

namespace octavo {

namespace {

// Columns of a result that one piece of work changes.
constexpr int64_t COLUMNS = 128;
// Ranks that one piece of work computes, and how many of them are summed at once.
constexpr int64_t RANKS = 8, RANKS_AT_ONCE = 4;
// Vectors of outputs that are summed at once.
constexpr int64_t VECTORS_AT_ONCE = 2;
// Tokens that meet the same factors at once.
constexpr int64_t TOKENS = 4;
// So many products cost about what two threads lose by waiting for one another.
constexpr int64_t MOST_REPEATED = 48 * 1024;

Floats read(const float* p) { return load(p); }
Floats read(const uint16_t* p) { return load_half(p); }

// Some tokens of a segment: their numbers, and where the ranks of each begin.
struct TokenBlock {
  const int64_t* tokens;
  const float* scales;
  float* ranks;
  int64_t stride;  // between tokens' ranks
};

// Ranks [r, r + ranks) of so many tokens: scale * a x. One chain of sums each, whatever `tokens`.
template <int ranks, int tokens, class Element>
void multiply_rows(const TokenBlock& block, const Adapt& a, const Element* rows, int64_t stride,
                   int64_t r) {
  Floats sums[tokens][ranks];
  const float* x[tokens];
  for (int t = 0; t < tokens; t++) {
    x[t] = a.x + block.tokens[t] * a.x_stride;
    for (int k = 0; k < ranks; k++) sums[t][k] = Floats(0.0f);
  }
  for (int64_t i = 0; i < a.columns; i += LANES) {
    Floats factors[ranks];
    for (int k = 0; k < ranks; k++) factors[k] = read(rows + (r + k) * stride + i);
    for (int t = 0; t < tokens; t++) {
      const Floats values = load_first(x[t] + i, a.columns - i);
      for (int k = 0; k < ranks; k++) sums[t][k] = fma(factors[k], values, sums[t][k]);
    }
  }
  for (int t = 0; t < tokens; t++)
    for (int k = 0; k < ranks; k++)
      block.ranks[t * block.stride + r + k] = block.scales[t] * sum(sums[t][k]);
}

// Ranks [first, last) of so many tokens.
template <int tokens, class Element>
void multiply_ranks(const TokenBlock& block, const Adapt& a, const LowRank& change, int64_t first,
                    int64_t last) {
  const Element* rows = static_cast<const Element*>(change.a);
  int64_t r = first;
  for (; r + RANKS_AT_ONCE <= last; r += RANKS_AT_ONCE)
    multiply_rows<RANKS_AT_ONCE, tokens>(block, a, rows, change.a_stride, r);
  for (; r < last; r++) multiply_rows<1, tokens>(block, a, rows, change.a_stride, r);
}

// Adds what the ranks of so many tokens make of `count` vectors from `column` on, of a piece's
// outputs, of which those before `last` exist.
template <int count, int tokens, class Element>
void add_vectors(const TokenBlock& block, const Adapt& a, const LowRankPiece& piece,
                 int64_t column, int64_t last) {
  const Element* b = static_cast<const Element*>(piece.b) + column;
  Floats totals[tokens][count];
  for (int t = 0; t < tokens; t++)
    for (int k = 0; k < count; k++) totals[t][k] = Floats(0.0f);
  for (int64_t r = 0; r < piece.rank; r++) {
    Floats factors[count];
    for (int k = 0; k < count; k++) factors[k] = read(b + r * piece.b_stride + k * LANES);
    for (int t = 0; t < tokens; t++) {
      const Floats rank(block.ranks[t * block.stride + piece.first_rank + r]);
      for (int k = 0; k < count; k++) totals[t][k] = fma(rank, factors[k], totals[t][k]);
    }
  }
  for (int t = 0; t < tokens; t++)
    for (int k = 0; k < count; k++) {
      const int64_t live = last - column - k * LANES;
      float* out = a.out + block.tokens[t] * a.out_stride + piece.first_output + column + k * LANES;
      store_first(out, load_first(out, live) + totals[t][k], live);
    }
}

// Adds what the ranks of so many tokens make of columns [first, last) of a piece's outputs.
template <int tokens, class Element>
void add_columns(const TokenBlock& block, const Adapt& a, const LowRankPiece& piece, int64_t first,
                 int64_t last) {
  int64_t column = first;
  for (; column + VECTORS_AT_ONCE * LANES <= last; column += VECTORS_AT_ONCE * LANES)
    add_vectors<VECTORS_AT_ONCE, tokens, Element>(block, a, piece, column, last);
  for (; column < last; column += LANES)
    add_vectors<1, tokens, Element>(block, a, piece, column, last);
}

const LowRank* change_of(const Adapt& a, const AdapterSegment& segment) {
  if (segment.slot >= a.num_slots || a.by_slot[segment.slot].rank == 0) return nullptr;
  return &a.by_slot[segment.slot];
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

// Calls work(segment, its change, block, number of tokens) for each block of tokens; the ranks of
// token i of a segment stand at (tokens of the segments before + i) * max_rank.
template <class Work>
void each_block(const Adapt& a, float* ranks, Work&& work) {
  int64_t number = 0;
  for (int64_t s = 0; s < a.batch->count; s++) {
    const AdapterSegment& segment = a.batch->segments[s];
    const LowRank* change = change_of(a, segment);
    for (int64_t i = 0; i < segment.num_tokens; i += TOKENS, number++) {
      const TokenBlock block{segment.tokens + i, segment.scales + i, ranks + i * a.max_rank,
                             a.max_rank};
      if (change != nullptr)
        work(number, *change, block, std::min(TOKENS, segment.num_tokens - i));
    }
    ranks += segment.num_tokens * a.max_rank;
  }
}

// Computes the ranks of block number `wanted`, or of all if it is negative; of ranks, those of
// cut number `cut`, or all.
void compute_ranks(const Adapt& a, float* ranks, int64_t wanted, int64_t cut) {
  each_block(a, ranks, [&](int64_t number, const LowRank& change, const TokenBlock& block,
                           int64_t tokens) {
    if (wanted >= 0 && number != wanted) return;
    const int64_t first = cut < 0 ? 0 : std::min(change.rank, cut * RANKS);
    const int64_t last = cut < 0 ? change.rank : std::min(change.rank, first + RANKS);
    dispatch(tokens, change.is_half, [&](auto count, auto element) {
      multiply_ranks<count, decltype(element)>(block, a, change, first, last);
    });
  });
}

// Adds all changes of block number `number` of the result's columns.
void add_changes(const Adapt& a, float* ranks, int64_t number) {
  const int64_t first = number * COLUMNS, last = std::min(a.outputs, first + COLUMNS);
  each_block(a, ranks, [&](int64_t, const LowRank& change, const TokenBlock& block,
                           int64_t tokens) {
    for (int64_t p = 0; p < change.num_pieces; p++) {
      const LowRankPiece& piece = change.pieces[p];
      const int64_t from = std::max<int64_t>(0, first - piece.first_output);
      const int64_t to = std::min(piece.outputs, last - piece.first_output);
      if (from >= to) continue;
      dispatch(tokens, change.is_half, [&](auto count, auto element) {
        add_columns<count, decltype(element)>(block, a, piece, from, to);
      });
    }
  });
}

}  // namespace

void adapt(const Adapt& a, Worker& worker) {
  const int64_t num_ranks = a.batch->num_tokens * a.max_rank;
  if (num_ranks == 0) return;
  const int64_t column_blocks = (a.outputs + COLUMNS - 1) / COLUMNS;
  if (num_ranks * a.columns <= MOST_REPEATED) {
    // each thread for itself, which is faster than waiting for the other
    float* ranks = nullptr;
    worker.share(column_blocks, [&](int64_t number) {
      if (ranks == nullptr) {
        ranks = worker.scratch().get<float>(num_ranks);
        compute_ranks(a, ranks, -1, -1);
      }
      add_changes(a, ranks, number);
    });
    return;
  }
  float* ranks = static_cast<float*>(worker.shared);
  int64_t token_blocks = 0;
  for (int64_t s = 0; s < a.batch->count; s++)
    token_blocks += (a.batch->segments[s].num_tokens + TOKENS - 1) / TOKENS;
  const int64_t cuts = (a.max_rank + RANKS - 1) / RANKS;
  worker.share(token_blocks * cuts,
               [&](int64_t piece) { compute_ranks(a, ranks, piece / cuts, piece % cuts); });
  worker.share(column_blocks, [&](int64_t number) { add_changes(a, ranks, number); });
}

}  // namespace octavo
