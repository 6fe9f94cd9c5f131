// Reduces a piece of codes on AMX, where the machine has it: the same bits as attention_codes.cpp.
//
// Knows rows and what they see. Does not know sequences or pages.
#include "attention_tiles.h"

#include <cstdlib>

#include "attention_weights.h"
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

void reduce_stack(const Unit& unit, int64_t piece, Range rows, const int8_t* values,
                  const Sums& part) {
  const Range vectors = unit.seen_by(rows, piece).vectors();
  if (vectors.is_empty()) return;
  const Desk& desk = unit.desk;
  const Piece& data = *desk.piece;
  const CodedKeys keys{data.keys, nullptr, data.key_scales, data.row_bytes, unit.dims};
  dot_all_on_tiles(keys, vectors.first, vectors.last, desk.query_codes + rows.first * unit.dims,
                   reinterpret_cast<int32_t*>(desk.scores));
  uint8_t* high = reinterpret_cast<uint8_t*>(desk.weights);
  const SplitWeights weights{high, high + STACK_ROWS * PIECE};
  // whole tiles
  const Range tokens{vectors.first * LANES / TILE_BYTES * TILE_BYTES,
                     round_up(vectors.last * LANES, TILE_BYTES)};
  LargestScale largest(data.value_scales);
  WeightScale scales[STACK_ROWS];
  for (int64_t row = rows.first; row < rows.last; row++) {
    const int64_t i = row - rows.first;
    float* scores = desk.scores + i * PIECE;
    scale_products(keys, vectors.first, vectors.last, desk.query_scales[row],
                   desk.query_sums[row], scores);
    // in the place of the scores: each is read before its weight is put there
    const WideWeights wide{reinterpret_cast<int32_t*>(scores)};
    scales[i] = put_weights(unit, {row, piece, scores, tokens}, largest, wide, part.state(row));
    weights.split(i, wide, tokens.first, tokens.last);
  }
  weigh_on_tiles(values, unit.dims, weights, tokens.first, tokens.last, scales,
                 rows.last - rows.first, part.row(rows.first), part.stride());
}

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
  for (int64_t row = 0; row < unit.rows; row += STACK_ROWS)
    reduce_stack(unit, piece, {row, std::min(unit.rows, row + STACK_ROWS)}, values, part);
}

#else

bool is_on_tiles(const Unit&) { return false; }

// no unit is on tiles
void reduce_on_tiles(const Unit&, int64_t, const Sums&) { std::abort(); }

#endif

}  // namespace octavo
