// Reduces a piece of codes on AMX, where the machine has it: the same bits as attention_codes.cpp.
//
// Knows rows and what they see. Does not know sequences or pages.
#include "attention_tiles.h"

#include <cstdlib>
#include <optional>

#include "attention_weights.h"
#include "attention_whole_rows.h"
#include "sizes.h"

namespace octavo {

#if defined(OCTAVO_HAS_TILES)

namespace {

// From so many rows on, ordering a piece's values for tiles costs less than it saves.
constexpr int64_t LEAST_ROWS = 48;

void order_piece(const Unit& unit, Range vectors, int8_t* out) {
  const Piece& data = *unit.desk.piece;
  const CodedValues values{data.values, nullptr, data.value_bytes, vectors.first, vectors.last};
  if (unit.layer.page.format == CacheFormat::INT4)
    order_values<NibbleValues>(values, unit.dims, out);
  else
    order_values<ByteValues>(values, unit.dims, out);
}

// Fetches the keys that all rows read.
void fetch_keys(const Unit& unit, Range vectors) {
  for (int64_t v = vectors.first; v < vectors.last; v++)
    for (int64_t i = 0; i < unit.dims * LANES; i += 64)
      __builtin_prefetch(unit.desk.piece->stream[v] + i);
}

// Whether a row sees all tokens of a piece, as they are.
bool sees_whole(const Unit& unit, int64_t row, int64_t piece) {
  const Range seen = unit.seen(row, piece);
  return seen.first == 0 && seen.last == PIECE && unit.layer.rule.cap == 0.0f;
}

// A stack of rows on its way through a piece. Stacks take each step together: after AMX, vectors
// are slow for a while.
class Stack {
 public:
  // The stack number `place` of those that go together.
  Stack(const Unit& unit, int64_t piece, Range rows, int64_t place)
      : unit_(unit),
        data_(*unit.desk.piece),
        keys_{data_.keys, nullptr, data_.key_scales, data_.row_bytes, unit.dims},
        piece_(piece),
        rows_(rows),
        vectors_(unit.seen_by(rows, piece).vectors()),
        // whole tiles
        tokens_{vectors_.first * LANES / TILE_BYTES * TILE_BYTES,
                round_up(vectors_.last * LANES, TILE_BYTES)},
        scores_(unit.desk.scores + place * STACK_ROWS * PIECE) {
    uint8_t* high = reinterpret_cast<uint8_t*>(unit.desk.weights) + 2 * place * STACK_ROWS * PIECE;
    weights_ = {high, high + STACK_ROWS * PIECE};
  }

  bool is_empty() const { return vectors_.is_empty(); }

  void dot() const {
    dot_all_on_tiles(keys_, vectors_.first, vectors_.last,
                     unit_.desk.query_codes + rows_.first * unit_.dims,
                     reinterpret_cast<int32_t*>(scores_));
  }

  void put_weights(LargestScale& largest, std::optional<WholeRows>& whole, const Sums& part) {
    for (int64_t row = rows_.first; row < rows_.last; row++) {
      const int64_t i = row - rows_.first;
      if (sees_whole(unit_, row, piece_)) {
        if (!whole) whole.emplace(keys_, data_, largest.of({scores_, 0, PIECE}));
        scales_[i] = put_whole_row(*whole, row, part.state(row));
      } else {
        scales_[i] = put_row(largest, row, part.state(row));
      }
    }
  }

  void weigh(const int8_t* values, const Sums& part) const {
    weigh_on_tiles(values, unit_.dims, weights_, tokens_.first, tokens_.last, scales_,
                   rows_.last - rows_.first, part.row(rows_.first), part.stride());
  }

 private:
  WeightScale put_whole_row(const WholeRows& whole, int64_t row, RowState& state) const {
    const bool has_offsets = unit_.layer.page.format == CacheFormat::INT4;
    const auto split = has_offsets ? &WholeRows::split<true> : &WholeRows::split<false>;
    const int64_t i = row - rows_.first;
    const int32_t* products = reinterpret_cast<const int32_t*>(scores_ + i * PIECE);
    return (whole.*split)(products, unit_.desk.query_scales[row], unit_.desk.query_sums[row], i,
                          weights_, state);
  }

  WeightScale put_row(LargestScale& largest, int64_t row, RowState& state) const {
    const int64_t i = row - rows_.first;
    float* scores = scores_ + i * PIECE;
    scale_products(keys_, vectors_.first, vectors_.last, unit_.desk.query_scales[row],
                   unit_.desk.query_sums[row], scores);
    // in the place of the scores: each is read before its weight is put there
    const WideWeights wide{reinterpret_cast<int32_t*>(scores)};
    const WeightScale scale =
        octavo::put_weights(unit_, {row, piece_, scores, tokens_}, largest, wide, state);
    weights_.split(i, wide, tokens_.first, tokens_.last);
    return scale;
  }

  const Unit& unit_;
  const Piece& data_;
  const CodedKeys keys_;
  const int64_t piece_;
  const Range rows_, vectors_, tokens_;
  float* const scores_;
  SplitWeights weights_;
  WeightScale scales_[STACK_ROWS];
};

}  // namespace

bool is_on_tiles(const Unit& unit) {
  return unit.rows >= LEAST_ROWS && unit.dims % TILE_BYTES == 0 && has_tiles();
}

void reduce_on_tiles(const Unit& unit, int64_t piece, const Sums& part) {
  const ShapedTiles tiles(whole_tile);
  const Range vectors = unit.seen_by({0, unit.rows}, piece).vectors();
  int8_t* values = reinterpret_cast<int8_t*>(unit.desk.unpacked);
  fetch_keys(unit, vectors);
  order_piece(unit, vectors, values);
  LargestScale largest(unit.desk.piece->value_scales);
  std::optional<WholeRows> whole;
  for (int64_t first = 0; first < unit.rows; first += STACKS_AT_ONCE * STACK_ROWS) {
    std::optional<Stack> stacks[STACKS_AT_ONCE];
    for (int64_t i = 0; i < STACKS_AT_ONCE; i++) {
      const int64_t row = first + i * STACK_ROWS;
      if (row >= unit.rows) break;
      const Range rows{row, std::min(unit.rows, row + STACK_ROWS)};
      stacks[i].emplace(unit, piece, rows, i);
      if (stacks[i]->is_empty()) stacks[i].reset();
    }
    for (auto& stack : stacks)
      if (stack) stack->dot();
    for (auto& stack : stacks)
      if (stack) stack->put_weights(largest, whole, part);
    for (auto& stack : stacks)
      if (stack) stack->weigh(values, part);
  }
}

#else

bool is_on_tiles(const Unit&) { return false; }

// no unit is on tiles
void reduce_on_tiles(const Unit&, int64_t, const Sums&) { std::abort(); }

#endif

}  // namespace octavo
