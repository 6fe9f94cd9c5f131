// Attention of a ragged batch over the pages of the cache.
//
// Knows units of work and in which order their results are folded. Does not know what a unit
// computes (attention_unit.h), nor how they are cut (attention_work.h).
#include <algorithm>

#include "attention_unit.h"
#include "sizes.h"

namespace octavo {

namespace {

// A unit by its number, and the pieces it takes.
struct Assignment {
  const AttentionTile& tile;
  int64_t head;
  Range pieces;

  Assignment(const AttentionWork& work, int64_t number, int64_t kv_heads)
      : tile(work.tile_of(number)), head((number - tile.first_unit) % kv_heads) {
    const int64_t segment = (number - tile.first_unit) / kv_heads;
    pieces = {tile.segment_start(segment), tile.segment_start(segment + 1)};
  }
};

// The part of one piece of a tile that is split.
Sums part_of(const Layer& layer, Worker& worker, const Assignment& unit, int64_t piece) {
  const int64_t size = layer.work.part_size(unit.tile);
  const int64_t index = unit.head * unit.tile.pieces() + piece - unit.tile.first_piece;
  return {static_cast<float*>(worker.shared) + unit.tile.first_part + index * size,
          layer.page.dims};
}

// Does unit `number`; `last` is the one after those that this thread does in a row.
void attend(const Layer& layer, Worker& worker, const Desk& desk, int64_t number, int64_t last) {
  const bool is_coded = layer.page.is_coded();
  const Assignment own(layer.work, number, layer.a.kv_heads);
  const Unit unit(layer, own.tile, own.head, desk);
  (is_coded ? load_code_queries : load_float_queries)(unit);
  for (int64_t piece = own.pieces.first; piece < own.pieces.last; piece++) {
    Ahead next_vectors;
    if (piece + 1 < own.pieces.last) {
      next_vectors = unit.ahead(piece + 1);
    } else if (number + 1 < last) {
      const Assignment next(layer.work, number + 1, layer.a.kv_heads);
      next_vectors = Unit(layer, next.tile, next.head, desk).ahead(next.pieces.first);
    }
    const Sums part = own.tile.is_split() ? part_of(layer, worker, own, piece)
                                          : Sums{desk.part_sums, layer.page.dims};
    unit.read(piece, next_vectors);
    (is_coded ? reduce_codes : reduce_floats)(unit, piece, part);
    if (!own.tile.is_split()) unit.take_in(piece, part);
  }
  if (!own.tile.is_split()) unit.write();
}

// Folds the parts of a tile that was split.
void merge(const Layer& layer, Worker& worker, const Desk& desk, int64_t number) {
  const AttentionTile& tile = layer.work.tiles[number / layer.a.kv_heads];
  const Assignment all(layer.work, tile.first_unit + number % layer.a.kv_heads, layer.a.kv_heads);
  const Unit unit(layer, tile, all.head, desk);
  for (int64_t piece = tile.first_piece; piece < tile.end_piece; piece++)
    unit.take_in(piece, part_of(layer, worker, all, piece));
  unit.write();
}

}  // namespace

void attention(const Attention& a, Worker& worker) {
  const PageShape page = PageShape::of(a.head_dim, a.block_size, a.format);
  AttentionWork work = AttentionWork::of(a, Sums::row_floats(page.dims));
  if (work.num_tiles == 0) return;
  // every thread comes to the same tiles: nothing that one reads here is written by another
  Desk desk{};
  const int64_t tiles_bytes = round_up(work.num_tiles * int64_t(sizeof(AttentionTile)), 64);
  const int64_t desk_bytes = desk.place(nullptr, work.max_rows, page.dims);
  uint8_t* memory = worker.scratch().get<uint8_t>(tiles_bytes + desk_bytes);
  work.deal(a, reinterpret_cast<AttentionTile*>(memory), worker.num_threads);
  desk.place(memory + tiles_bytes, work.max_rows, page.dims);
  const Layer layer(a, work, page);

  const int64_t in_a_row = work.units_in_a_row(worker.num_threads);
  const int64_t turns = divide_up(work.num_units, in_a_row);
  worker.share(turns, [&](int64_t turn) {
    // the last queries of a sequence have the most to do, so that they come first
    const int64_t first = (turns - 1 - turn) * in_a_row;
    const int64_t last = std::min(work.num_units, first + in_a_row);
    for (int64_t number = first; number < last; number++)
      attend(layer, worker, desk, number, last);
  });
  if (work.num_split == 0) return;
  worker.share(work.num_split * a.kv_heads,
               [&](int64_t number) { merge(layer, worker, desk, number); });
}

}  // namespace octavo
