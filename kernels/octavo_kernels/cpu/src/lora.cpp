// Low-rank changes of linear layers: out += scale * b (a x), for the tokens of each adapter.
//
// First the ranks of every token, then columns of the result: a column is one thread's, which adds
// the adapters' changes in the order of the segments. A token's result depends on its own adapters
// alone. Knows factors and which tokens they change. Does not know what an adapter is.
#include <algorithm>

#include "operations.h"
#include "vectors.h"

namespace octavo {

namespace {

// Columns of a result that one piece of work changes.
constexpr int64_t COLUMNS = 128;

// Ranks that one piece of work computes, and how many of them meet a vector of x at once.
constexpr int64_t RANKS = 8, RANKS_AT_ONCE = 4;
// Vectors of outputs that are summed at once.
constexpr int64_t VECTORS_AT_ONCE = 4;
// So many products cost about what two threads lose by waiting for one another.
constexpr int64_t MOST_REPEATED = 48 * 1024;

Floats read(const float* p) { return load(p); }
Floats read(const uint16_t* p) { return load_half(p); }

// out[r] = scale * (row r of a) x, for `count` rows that are `stride` apart.
template <int count, class Element>
void multiply_rows(float* out, const Element* a, int64_t stride, const float* x, int64_t width,
                   float scale) {
  Floats sums[count][2];
  for (int r = 0; r < count; r++) sums[r][0] = sums[r][1] = Floats(0.0f);
  int64_t i = 0;
  for (; i + 2 * LANES <= width; i += 2 * LANES)
    for (int r = 0; r < count; r++)
      for (int k = 0; k < 2; k++)
        sums[r][k] =
            fma(read(a + r * stride + i + k * LANES), load(x + i + k * LANES), sums[r][k]);
  for (; i < width; i += LANES)
    for (int r = 0; r < count; r++)
      sums[r][0] = fma(read(a + r * stride + i), load_first(x + i, width - i), sums[r][0]);
  for (int r = 0; r < count; r++) out[r] = scale * sum(sums[r][0] + sums[r][1]);
}

// Ranks [first, last) of one token.
template <class Element>
void multiply_ranks(float* out, const LowRank& change, int64_t first, int64_t last, const float* x,
                    int64_t width, float scale) {
  const Element* a = static_cast<const Element*>(change.a);
  const int64_t stride = change.a_stride;
  int64_t r = first;
  for (; r + RANKS_AT_ONCE <= last; r += RANKS_AT_ONCE)
    multiply_rows<RANKS_AT_ONCE>(out + r, a + r * stride, stride, x, width, scale);
  for (; r < last; r++) multiply_rows<1>(out + r, a + r * stride, stride, x, width, scale);
}

// Adds what one token's ranks make of `count` vectors of outputs, of which `live` floats exist.
template <int count, class Element>
void add_vectors(const LowRankPiece& piece, const float* ranks, const Element* b, float* out,
                 int64_t live) {
  Floats totals[count];
  for (int k = 0; k < count; k++) totals[k] = Floats(0.0f);
  for (int64_t r = 0; r < piece.rank; r++) {
    const Floats rank(ranks[piece.first_rank + r]);
    for (int k = 0; k < count; k++)
      totals[k] = fma(rank, read(b + r * piece.b_stride + k * LANES), totals[k]);
  }
  for (int k = 0; k < count; k++) {
    const int64_t n = live - k * LANES;
    store_first(out + k * LANES, load_first(out + k * LANES, n) + totals[k], n);
  }
}

// Adds what one token's ranks make of columns [first, last) of a piece's outputs.
template <class Element>
void add_columns(const LowRankPiece& piece, const float* ranks, float* out, int64_t first,
                 int64_t last) {
  const Element* b = static_cast<const Element*>(piece.b);
  float* target = out + piece.first_output;
  int64_t column = first;
  for (; column + VECTORS_AT_ONCE * LANES <= last; column += VECTORS_AT_ONCE * LANES)
    add_vectors<VECTORS_AT_ONCE>(piece, ranks, b + column, target + column, last - column);
  for (; column < last; column += LANES)
    add_vectors<1>(piece, ranks, b + column, target + column, last - column);
}

const LowRank* change_of(const Adapt& a, const AdapterSegment& segment) {
  if (segment.slot >= a.num_slots || a.by_slot[segment.slot].rank == 0) return nullptr;
  return &a.by_slot[segment.slot];
}

// Adds what an adapter changes of columns [first, last) of the result.
void add_block(const Adapt& a, const AdapterSegment& segment, const float* ranks, int64_t first,
               int64_t last) {
  const LowRank* change = change_of(a, segment);
  if (change == nullptr) return;
  for (int64_t p = 0; p < change->num_pieces; p++) {
    const LowRankPiece& piece = change->pieces[p];
    const int64_t from = std::max<int64_t>(0, first - piece.first_output);
    const int64_t to = std::min(piece.outputs, last - piece.first_output);
    if (from >= to) continue;
    for (int64_t i = 0; i < segment.num_tokens; i++) {
      const float* of_token = ranks + i * a.max_rank;
      float* out = a.out + segment.tokens[i] * a.out_stride;
      if (change->is_half)
        add_columns<uint16_t>(piece, of_token, out, from, to);
      else
        add_columns<float>(piece, of_token, out, from, to);
    }
  }
}

// Computes ranks of token number `place` of the batch, from number `cut` * RANKS on.
void compute_ranks(const Adapt& a, float* all_ranks, int64_t place, int64_t cut) {
  const AdapterSegments& batch = *a.batch;
  int64_t s = 0, i = place;
  while (i >= batch.segments[s].num_tokens) i -= batch.segments[s++].num_tokens;
  const AdapterSegment& segment = batch.segments[s];
  const LowRank* change = change_of(a, segment);
  if (change == nullptr) return;
  const float* x = a.x + segment.tokens[i] * a.x_stride;
  const int64_t first = cut * RANKS, last = std::min(change->rank, first + RANKS);
  const auto multiply = change->is_half ? multiply_ranks<uint16_t> : multiply_ranks<float>;
  multiply(all_ranks + place * a.max_rank, *change, first, last, x, a.columns, segment.scales[i]);
}

// Adds all changes of block number `block` of the result's columns.
void add_changes(const Adapt& a, const float* ranks, int64_t block) {
  const int64_t first = block * COLUMNS, last = std::min(a.outputs, first + COLUMNS);
  for (int64_t s = 0; s < a.batch->count; s++) {
    const AdapterSegment& segment = a.batch->segments[s];
    add_block(a, segment, ranks, first, last);
    ranks += segment.num_tokens * a.max_rank;
  }
}

}  // namespace

void adapt(const Adapt& a, Worker& worker) {
  const int64_t num_tokens = a.batch->num_tokens, num_ranks = num_tokens * a.max_rank;
  if (num_ranks == 0) return;
  const int64_t cuts = (a.max_rank + RANKS - 1) / RANKS;
  const int64_t blocks = (a.outputs + COLUMNS - 1) / COLUMNS;
  if (num_ranks * a.columns <= MOST_REPEATED) {
    // each thread for itself, which is faster than waiting for the other
    float* ranks = nullptr;
    worker.share(blocks, [&](int64_t block) {
      if (ranks == nullptr) {
        ranks = worker.scratch().get<float>(num_ranks);
        for (int64_t i = 0; i < num_tokens * cuts; i++) compute_ranks(a, ranks, i / cuts, i % cuts);
      }
      add_changes(a, ranks, block);
    });
    return;
  }
  // those of token i of a segment stand at (tokens of the segments before + i) * max_rank
  float* ranks = static_cast<float*>(worker.shared);
  worker.share(num_tokens * cuts,
               [&](int64_t piece) { compute_ranks(a, ranks, piece / cuts, piece % cuts); });
  worker.share(blocks, [&](int64_t block) { add_changes(a, ranks, block); });
}

}  // namespace octavo
