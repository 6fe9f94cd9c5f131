// Cuts the attention of a step into pieces of work.
//
// A tile is a few neighbouring queries of one sequence. For each key head it reduces the pieces of
// keys that its queries see, in rising order. Where tiles are too few for all threads, the pieces
// of a tile are dealt out too, each leaves its part in memory, and the parts are folded afterwards:
// in the same order, so that no bit depends on who does what.
// Knows lengths. Does not know queries, keys or values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention_sizes.h"
#include "operations.h"
#include "sizes.h"

namespace octavo {

// Rows (queries times heads of a key head) of a tile, about.
constexpr int64_t TILE_ROWS = 192;
// Units of work that each thread should find, about.
constexpr int64_t UNITS_PER_THREAD = 8;

struct AttentionTile {
  int64_t sequence;
  int64_t token;     // the first query's place in the batch
  int64_t position;  // and in its sequence
  int64_t queries;
  int64_t first_piece, end_piece;
  int64_t first_unit, segments;  // for each key head so many units, of about equally many pieces
  int64_t first_part;            // in floats; of the first key head

  int64_t pieces() const { return end_piece - first_piece; }
  bool is_split() const { return segments > 1; }
  // the pieces of one segment
  int64_t segment_start(int64_t segment) const {
    return first_piece + pieces() * segment / segments;
  }
};

struct AttentionWork {
  int64_t tile_queries, ratio;
  int64_t inverse_ratio;  // times 2^32, rounded up
  int64_t part_floats;  // of one row of a part
  int64_t max_rows;     // of a tile
  int64_t num_tiles, num_units, num_split;
  AttentionTile* tiles;  // those that are split first

  static AttentionWork of(const Attention& a, int64_t part_floats) {
    const int64_t ratio = a.heads / a.kv_heads;
    AttentionWork work{};
    work.ratio = ratio;
    work.inverse_ratio = (int64_t(1) << 32) / ratio + 1;
    work.tile_queries = std::max<int64_t>(1, TILE_ROWS / ratio);
    work.part_floats = part_floats;
    for (int64_t i = 0; i < *a.sequences; i++) {
      const int64_t queries = queries_of(a, i);
      work.num_tiles += divide_up(queries, work.tile_queries);
      work.max_rows = std::max(work.max_rows, std::min(queries, work.tile_queries) * ratio);
    }
    return work;
  }

  int64_t rows(const AttentionTile& tile) const { return tile.queries * ratio; }
  // row / ratio, exactly: a division takes as long as ten multiplications
  int64_t query_of(int64_t row) const { return row * inverse_ratio >> 32; }
  // of one piece of a tile, for one key head
  int64_t part_size(const AttentionTile& tile) const { return rows(tile) * part_floats; }

  // Lays the work out in memory for `num_tiles` tiles.
  void deal(const Attention& a, AttentionTile* memory, int64_t num_threads) {
    tiles = memory;
    int64_t count = 0, pieces = 0, most = 0;
    for (int64_t i = 0; i < *a.sequences; i++) {
      for (int64_t query = 0; query < queries_of(a, i); query += tile_queries) {
        const AttentionTile& tile = tiles[count++] = make_tile(a, i, query);
        pieces += tile.pieces();
        most = std::max(most, tile.pieces());
      }
    }
    int64_t share = most;
    if (num_threads > 1)
      share = std::max<int64_t>(1, pieces * a.kv_heads / (num_threads * UNITS_PER_THREAD));
    while (parts_floats(a, share) > a.parts_floats) share *= 2;
    split(a, share);
  }

  // The tile that a unit belongs to.
  const AttentionTile& tile_of(int64_t unit) const {
    return *(std::upper_bound(tiles, tiles + num_tiles, unit,
                              [](int64_t n, const AttentionTile& tile) {
                                return n < tile.first_unit;
                              }) -
             1);
  }

  // Units that a thread does one after the other: few enough that all threads stay busy.
  int64_t units_in_a_row(int64_t num_threads) const {
    return std::max<int64_t>(1, std::min<int64_t>(8, num_units / (2 * UNITS_PER_THREAD *
                                                                  num_threads)));
  }

 private:
  static int64_t queries_of(const Attention& a, int64_t sequence) {
    return a.query_start[sequence + 1] - a.query_start[sequence];
  }

  AttentionTile make_tile(const Attention& a, int64_t sequence, int64_t query) const {
    const int64_t queries = queries_of(a, sequence);
    AttentionTile tile{};
    tile.sequence = sequence;
    tile.token = a.query_start[sequence] + query;
    tile.position = a.seq_lens[sequence] - queries + query;
    tile.queries = std::min(tile_queries, queries - query);
    tile.first_piece = std::max<int64_t>(0, tile.position - a.window + 1) / PIECE;
    tile.end_piece = (tile.position + tile.queries - 1) / PIECE + 1;
    return tile;
  }

  int64_t parts_floats(const Attention& a, int64_t share) const {
    int64_t floats = 0;
    for (int64_t i = 0; i < num_tiles; i++)
      if (tiles[i].pieces() > share) floats += tiles[i].pieces() * part_size(tiles[i]);
    return floats * a.kv_heads;
  }

  void split(const Attention& a, int64_t share) {
    const auto is_long = [&](const AttentionTile& tile) { return tile.pieces() > share; };
    num_split = std::partition(tiles, tiles + num_tiles, is_long) - tiles;
    int64_t part = 0;
    for (int64_t i = 0; i < num_tiles; i++) {
      AttentionTile& tile = tiles[i];
      tile.segments = i < num_split ? (tile.pieces() + share - 1) / share : 1;
      tile.first_unit = num_units;
      tile.first_part = part;
      num_units += tile.segments * a.kv_heads;
      if (tile.is_split()) part += tile.pieces() * part_size(tile) * a.kv_heads;
    }
  }
};

}  // namespace octavo
