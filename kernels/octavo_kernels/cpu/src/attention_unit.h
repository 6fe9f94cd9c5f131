// One tile of queries and one key head: its rows, what they see, and how pieces are folded.
//
// A row is one query and one of its heads; rows are worked on in groups. Knows positions. Does not
// know how work is cut (attention_work.h), where a piece lies (attention_pieces.h), nor how a piece
// is reduced (attention_floats.cpp, attention_codes.cpp).
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "attention_pieces.h"
#include "attention_rows.h"
#include "attention_sizes.h"
#include "attention_work.h"
#include "hadamard.h"
#include "sizes.h"

namespace octavo {

// Groups of rows that are worked on at once.
constexpr int64_t GROUPS_AT_ONCE = 4;
// Rows whose scores are at a desk, at most.
constexpr int64_t MOST_ROWS =
    std::max<int64_t>(GROUPS_AT_ONCE * GROUP_ROWS, STACKS_AT_ONCE * STACK_ROWS);

// What all units of a call have in common.
struct Layer {
  const Attention& a;
  const AttentionWork& work;
  const PageShape page;
  const ScoreRule rule;
  // what products of rotated heads are too large by
  const float rotated;

  Layer(const Attention& a, const AttentionWork& work, const PageShape& page)
      : a(a),
        work(work),
        page(page),
        rule(ScoreRule::of(a.scale, a.softcap)),
        rotated(page.is_coded() ? float(rotated_dims(a.head_dim)) : 1.0f) {}
};

// Sums of values for some rows, and beside each row's what they are relative to.
struct Sums {
  float* memory;
  int64_t dims;

  // of one row, whole vectors
  static int64_t row_floats(int64_t dims) { return dims + LANES; }
  int64_t stride() const { return row_floats(dims); }
  float* row(int64_t i) const { return memory + i * stride(); }
  RowState& state(int64_t i) const { return *reinterpret_cast<RowState*>(row(i) + dims); }
};

// A thread's memory for a unit of work.
struct Desk {
  float *queries, *scores, *sums, *part_sums;
  // of coded caches: queries' codes, for whole stacks, their scales and sums; weights
  int8_t* query_codes;
  float* query_scales;
  int32_t* query_sums;
  int16_t* weights;
  Piece* piece;
  // keys and values of a piece: put together, and as floats
  uint8_t *gathered, *unpacked;

  // Lays out the desk in memory, if there is any yet; returns the bytes it takes.
  int64_t place(uint8_t* memory, int64_t rows, int64_t dims) {
    int64_t end = 0;
    const auto take = [&](auto*& pointer, int64_t count) {
      if (memory != nullptr)
        pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(memory + end);
      end += round_up(count * int64_t(sizeof(*pointer)), 64);
    };
    // codes are made beside one row
    take(queries, (rows + 1) * dims);
    take(scores, MOST_ROWS * PIECE);
    take(sums, rows * Sums::row_floats(dims));
    take(part_sums, rows * Sums::row_floats(dims));
    take(query_codes, round_up(rows, STACK_ROWS) * dims);
    take(query_scales, rows);
    take(query_sums, rows);
    take(weights, STACKS_AT_ONCE * STACK_ROWS * PIECE);
    take(piece, 1);
    take(gathered, 2 * PIECE * dims * 4);
    take(unpacked, 2 * PIECE * dims * 4);
    return end;
  }
};

// A tile and key head at a thread's desk.
class Unit {
 public:
  Unit(const Layer& layer, const AttentionTile& tile, int64_t head, const Desk& desk)
      : layer(layer),
        desk(desk),
        rows(layer.work.rows(tile)),
        groups(divide_up(rows, GROUP_ROWS)),
        dims(layer.page.dims),
        group_rows_(rows / groups),
        larger_groups_(rows % groups),
        tile_(tile),
        head_(head),
        reader_(layer.a, layer.page, tile.sequence, head),
        sums_{desk.sums, dims} {}

  const Layer& layer;
  const Desk& desk;
  const int64_t rows, groups, dims;

  // The rows of a group, about equally many in each.
  Range rows_of(int64_t group) const { return {first_row(group), first_row(group + 1)}; }
  // The query of a row.
  const float* query(int64_t row) const {
    return layer.a.q + token_of(row) * layer.a.q_stride + head_of(row) * layer.a.q_head_stride;
  }
  // The tokens of a piece that a row sees.
  Range seen(int64_t row, int64_t piece) const {
    const int64_t place = position_of(row) - piece * PIECE;
    return Range{place - layer.a.window + 1, place + 1}.within({0, PIECE});
  }
  // The tokens of a piece that any of some rows sees: rows are in rising order of positions.
  Range seen_by(Range some, int64_t piece) const {
    return {seen(some.first, piece).first, seen(some.last - 1, piece).last};
  }

  // The shares of the first vectors that a piece is read from.
  Ahead ahead(int64_t piece) const {
    return reader_.ahead(piece * PIECE + seen(0, piece).first, tile_.position + tile_.queries);
  }
  // Finds a piece in the cache, for the desk; `next` is what is read after it.
  void read(int64_t piece, const Ahead& next) const {
    reader_.read(*desk.piece, piece * PIECE, seen_by({0, rows}, piece), next, desk.gathered);
  }

  // Folds a piece into the tile's sums.
  void take_in(int64_t piece, const Sums& part) const {
    for (int64_t row = 0; row < rows; row++) {
      if (seen(row, piece).is_empty()) continue;
      float* sums = sums_.row(row);
      const int64_t first_seen = std::max<int64_t>(0, position_of(row) - layer.a.window + 1);
      if (piece == first_seen / PIECE)
        std::memcpy(sums, part.row(row), size_t(sums_.stride()) * sizeof(float));
      else
        fold(sums_.state(row), sums, part.state(row), part.row(row), dims);
    }
  }

  // Writes the tile's results.
  void write() const {
    const Attention& a = layer.a;
    for (int64_t row = 0; row < rows; row++) {
      if (layer.page.is_coded()) rotate(sums_.row(row), dims, rotated_dims(a.head_dim));
      float* out = a.out + token_of(row) * a.out_stride + head_of(row) * a.out_head_stride;
      finish(out, sums_.state(row), sums_.row(row), a.head_dim, 1.0f / layer.rotated);
    }
  }

 private:
  int64_t first_row(int64_t group) const {
    return group * group_rows_ + std::min(group, larger_groups_);
  }
  int64_t token_of(int64_t row) const { return tile_.token + layer.work.query_of(row); }
  int64_t position_of(int64_t row) const { return tile_.position + layer.work.query_of(row); }
  int64_t head_of(int64_t row) const {
    return head_ * layer.work.ratio + row - layer.work.query_of(row) * layer.work.ratio;
  }

  const int64_t group_rows_, larger_groups_;  // the first groups have one row more
  const AttentionTile& tile_;
  const int64_t head_;
  const PageReader reader_;
  const Sums sums_;
};

// Reads a unit's queries to its desk.
void load_float_queries(const Unit& unit);
void load_code_queries(const Unit& unit);

// Reduces the piece at the desk into a part, for the rows that see some of it.
void reduce_floats(const Unit& unit, int64_t piece, const Sums& part);
void reduce_codes(const Unit& unit, int64_t piece, const Sums& part);

// The same as `reduce_codes` on AMX, where there is that and it is worth it.
bool is_on_tiles(const Unit& unit);
void reduce_on_tiles(const Unit& unit, int64_t piece, const Sums& part);

}  // namespace octavo
