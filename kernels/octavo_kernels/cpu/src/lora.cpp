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

// The product of two rows of `width` floats.
float product(const float* a, const float* x, int64_t width) {
  Floats sums[2] = {Floats(0.0f), Floats(0.0f)};
  int64_t i = 0;
  for (; i + 2 * LANES <= width; i += 2 * LANES) {
    sums[0] = fma(load(a + i), load(x + i), sums[0]);
    sums[1] = fma(load(a + i + LANES), load(x + i + LANES), sums[1]);
  }
  for (; i < width; i += LANES)
    sums[0] = fma(load_first(a + i, width - i), load_first(x + i, width - i), sums[0]);
  return sum(sums[0] + sums[1]);
}

// Adds what one token's ranks make of columns [first, last) of a piece's outputs.
void add_columns(const LowRankPiece& piece, const float* ranks, float* out, int64_t first,
                 int64_t last) {
  for (int64_t column = first; column < last; column += LANES) {
    const int64_t live = last - column;
    Floats total(0.0f);
    for (int64_t r = 0; r < piece.rank; r++) {
      const Floats b = load_first(piece.b + r * piece.outputs + column, live);
      total = fma(Floats(ranks[piece.first_rank + r]), b, total);
    }
    float* target = out + piece.first_output + column;
    store_first(target, load_first(target, live) + total, live);
  }
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
    for (int64_t i = 0; i < segment.num_tokens; i++)
      add_columns(piece, ranks + i * a.max_rank, a.out + segment.tokens[i] * a.out_stride, from,
                  to);
  }
}

}  // namespace

void adapt(const Adapt& a, Worker& worker) {
  const AdapterSegments& batch = *a.batch;
  if (batch.count == 0) return;
  // those of token i of a segment stand at (tokens of the segments before + i) * max_rank
  float* all_ranks = static_cast<float*>(worker.shared);
  worker.share(batch.num_tokens, [&](int64_t place) {
    int64_t s = 0, i = place;
    while (i >= batch.segments[s].num_tokens) i -= batch.segments[s++].num_tokens;
    const AdapterSegment& segment = batch.segments[s];
    const LowRank* change = change_of(a, segment);
    if (change == nullptr) return;
    const float* x = a.x + segment.tokens[i] * a.x_stride;
    for (int64_t r = 0; r < change->rank; r++)
      all_ranks[place * a.max_rank + r] =
          segment.scales[i] * product(change->a + r * a.columns, x, a.columns);
  });
  worker.share((a.outputs + COLUMNS - 1) / COLUMNS, [&](int64_t block) {
    const int64_t first = block * COLUMNS, last = std::min(a.outputs, first + COLUMNS);
    const float* ranks = all_ranks;
    for (int64_t s = 0; s < batch.count; s++) {
      const AdapterSegment& segment = batch.segments[s];
      add_block(a, segment, ranks, first, last);
      ranks += segment.num_tokens * a.max_rank;
    }
  });
}

}  // namespace octavo
