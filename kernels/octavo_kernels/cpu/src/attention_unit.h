// One tile of queries and one key head: queries times keys, weights from the scores, weights times
// values, piece by piece.
//
// Knows which tokens a query sees. Does not know how work is cut (attention_work.h), where a piece
// lies (attention_pieces.h), nor how numbers of a page become floats (attention_kernels.h).
#pragma once

#include <algorithm>
#include <type_traits>

#include "attention_kernels.h"
#include "attention_pieces.h"
#include "attention_rows.h"
#include "attention_work.h"

namespace octavo {

// Tokens that all rows meet while these are in the first cache.
constexpr int64_t SPAN = 64;
// Groups of rows that are worked on at once.
constexpr int64_t GROUPS_AT_ONCE = 4;
// From so many groups of rows on, unpacking a piece once costs less than each time.
constexpr int64_t UNPACKED_GROUPS = 3;

// What all units of a call have in common.
struct Layer {
  const Attention& a;
  const AttentionWork& work;
  const PageShape page;
  const ScoreRule rule;

  int64_t position(const AttentionTile& tile, int64_t row) const {
    return tile.position + row / work.ratio;
  }
  // The tokens of a piece that a row of a tile sees.
  Range seen(const AttentionTile& tile, int64_t row, int64_t piece) const {
    const int64_t place = position(tile, row) - piece * PIECE;
    return Range{place - a.window + 1, place + 1}.within({0, PIECE});
  }
  int64_t first_piece(const AttentionTile& tile, int64_t row) const {
    return std::max<int64_t>(0, position(tile, row) - a.window + 1) / PIECE;
  }
  bool is_coded() const { return page.bits() < 16; }
  bool is_asymmetric() const { return page.format == CacheFormat::INT4; }
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
  float *queries, *query_sums, *scores, *sums, *part_sums;
  Piece* piece;
  uint8_t *gathered, *unpacked;

  // Lays out the desk in memory, if there is any yet; returns the bytes it takes.
  int64_t place(uint8_t* memory, int64_t rows, int64_t dims) {
    int64_t end = 0;
    const auto take = [&](auto*& pointer, int64_t count) {
      if (memory != nullptr)
        pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(memory + end);
      end += round_up(count * int64_t(sizeof(*pointer)), 64);
    };
    take(queries, rows * dims);
    take(query_sums, rows);
    take(scores, GROUPS_AT_ONCE * GROUP_ROWS * PIECE);
    take(sums, rows * Sums::row_floats(dims));
    take(part_sums, rows * Sums::row_floats(dims));
    take(piece, 1);
    take(gathered, 2 * PIECE * dims * 4);
    take(unpacked, 2 * PIECE * dims * 4);
    return end;
  }
};

// One tile and key head at a thread's desk.
class Unit {
 public:
  Unit(const Layer& layer, const AttentionTile& tile, int64_t head, const Desk& desk)
      : layer_(layer),
        tile_(tile),
        desk_(desk),
        reader_(layer.a, layer.page, tile.sequence, head),
        head_(head),
        rows_(layer.work.rows(tile)),
        groups_((rows_ + GROUP_ROWS - 1) / GROUP_ROWS),
        dims_(layer.page.dims),
        sums_{desk.sums, dims_} {}

  // Reads the queries, scaled, in groups of rows: [dims][rows of the group] each.
  void load_queries() const {
    const Attention& a = layer_.a;
    for (int64_t group = 0; group < groups_; group++) {
      const Range rows = rows_of(group);
      const int64_t count = rows.last - rows.first;
      for (int64_t row = rows.first; row < rows.last; row++) {
        const float* q = a.q + token_of(row) * a.q_stride + head_of(row) * a.q_head_stride;
        float* out = desk_.queries + rows.first * dims_ + (row - rows.first);
        for (int64_t i = 0; i < a.head_dim; i++) out[i * count] = q[i] * layer_.rule.query_scale;
        for (int64_t i = a.head_dim; i < dims_; i++) out[i * count] = 0.0f;
        if (!layer_.is_asymmetric()) continue;
        float& total = desk_.query_sums[row] = 0.0f;
        for (int64_t i = 0; i < dims_; i++) total += out[i * count];
      }
    }
  }

  // The shares of the first vectors that a piece is read from.
  Ahead ahead(int64_t piece) const {
    return reader_.ahead(piece * PIECE + layer_.seen(tile_, 0, piece).first,
                         tile_.position + tile_.queries);
  }

  // Reduces one piece into a part, for the rows that see some of it.
  void reduce(int64_t piece, const Sums& part, const Ahead& next) const {
    const int64_t last_row = rows_ - 1;
    const Range seen{layer_.seen(tile_, 0, piece).first, layer_.seen(tile_, last_row, piece).last};
    reader_.read(*desk_.piece, piece * PIECE, seen, next, desk_.gathered);
    switch (layer_.page.format) {
      case CacheFormat::FLOAT32: return reduce_as<CachedFloats>(piece, seen, part);
      case CacheFormat::FLOAT16: return reduce_as<CachedHalves>(piece, seen, part);
      case CacheFormat::INT8: return reduce_as<CachedBytes>(piece, seen, part);
      case CacheFormat::INT4: return reduce_as<CachedNibbles>(piece, seen, part);
    }
  }

  // Folds a piece into the tile's sums.
  void take_in(int64_t piece, const Sums& part) const {
    for (int64_t row = 0; row < rows_; row++) {
      if (layer_.seen(tile_, row, piece).is_empty()) continue;
      float* sums = sums_.row(row);
      if (piece == layer_.first_piece(tile_, row))
        std::memcpy(sums, part.row(row), size_t(sums_.stride()) * sizeof(float));
      else
        fold(sums_.state(row), sums, part.state(row), part.row(row), dims_);
    }
  }

  // Writes the tile's results.
  void write() const {
    const Attention& a = layer_.a;
    for (int64_t row = 0; row < rows_; row++) {
      float* out = a.out + token_of(row) * a.out_stride + head_of(row) * a.out_head_stride;
      finish(out, sums_.state(row), sums_.row(row), a.head_dim);
    }
  }

 private:
  int64_t token_of(int64_t row) const { return tile_.token + row / layer_.work.ratio; }
  int64_t head_of(int64_t row) const {
    return head_ * layer_.work.ratio + row % layer_.work.ratio;
  }
  Range rows_of(int64_t group) const {
    return {rows_ * group / groups_, rows_ * (group + 1) / groups_};
  }

  template <class Kind>
  void reduce_as(int64_t piece, Range seen, const Sums& part) const {
    if (Kind::BITS < 32 && groups_ >= UNPACKED_GROUPS) {
      unpack<Kind>(seen.vectors());
      reduce_all<CachedFloats>(piece, part);
    } else {
      reduce_all<Kind>(piece, part);
    }
  }

  // Turns the vectors of the piece at the desk into floats, and points it at those.
  template <class Kind>
  void unpack(Range vectors) const {
    Piece& piece = *desk_.piece;
    float* keys = reinterpret_cast<float*>(desk_.unpacked) + vectors.first * LANES * dims_;
    float* values = keys + PIECE * dims_;
    for (int64_t v = vectors.first; v < vectors.last; v++) {
      const uint8_t* p = piece.keys[v];
      piece.keys[v] = reinterpret_cast<uint8_t*>(keys);
      for (int64_t i = 0; i < dims_; i += 2, p += piece.pair_bytes, keys += 2 * LANES) {
        const typename Kind::KeyPair pair = Kind::keys(p, piece.pair_bytes);
        store(keys, pair.even());
        store(keys + LANES, pair.odd());
      }
      p = piece.values[v];
      piece.values[v] = reinterpret_cast<uint8_t*>(values);
      constexpr int64_t step = LANES * Kind::BITS / 8;
      if (dims_ % (2 * LANES) == 0) {
        for (int64_t i = 0; i < LANES * dims_; i += 2 * LANES, p += 2 * step) {
          Floats first, second;
          Kind::values(p, first, second);
          store(values + i, first);
          store(values + i + LANES, second);
        }
      } else if constexpr (Kind::BITS > 4) {
        for (int64_t i = 0; i < LANES * dims_; i += LANES, p += step)
          store(values + i, Kind::value(p));
      }
      values += LANES * dims_;
    }
    piece.pair_bytes = 2 * LANES * 4;
    piece.token_bytes = dims_ * 4;
    // there is nothing to fetch
    piece.keys_ahead = piece.values_ahead = nullptr;
  }

  // Reduces the piece for a few groups of rows at a time, so that scores stay in a near cache.
  template <class Kind>
  void reduce_all(int64_t piece, const Sums& part) const {
    for (int64_t group = 0; group < groups_; group += GROUPS_AT_ONCE) {
      const Range groups{group, std::min(groups_, group + GROUPS_AT_ONCE)};
      const Range rows{rows_of(groups.first).first, rows_of(groups.last - 1).last};
      const Range seen{layer_.seen(tile_, rows.first, piece).first,
                       layer_.seen(tile_, rows.last - 1, piece).last};
      // one group reads each key once: there is no need to keep it near
      const int64_t span = groups.last - groups.first > 1 ? SPAN : PIECE;
      const auto each_span = [&](auto&& work) {
        for (int64_t first = seen.first / span * span; first < seen.last; first += span)
          for (int64_t i = groups.first; i < groups.last; i++)
            work(rows_of(i), Range{first, first + span});
      };
      each_span([&](Range of_group, Range tokens) {
        multiply<Kind>(piece, of_group, rows.first, tokens);
      });
      for (int64_t row = rows.first; row < rows.last; row++)
        soften_row(row, rows.first, layer_.seen(tile_, row, piece), part);
      each_span([&](Range of_group, Range tokens) {
        weigh<Kind>(piece, of_group, rows.first, tokens, part);
      });
    }
  }

  // Leaves the products of a group's queries and the keys in the scores.
  template <class Kind>
  void multiply(int64_t piece, Range rows, int64_t first_row, Range tokens) const {
    const Piece& data = *desk_.piece;
    const KeyWalk keys{data.keys, data.keys_ahead, data.pair_bytes, dims_};
    const Range seen = Range{layer_.seen(tile_, rows.first, piece).first,
                             layer_.seen(tile_, rows.last - 1, piece).last}
                           .within(tokens);
    if (seen.is_empty()) return;
    const Range vectors = seen.vectors();
    dot_all<Kind>(keys, vectors.first, vectors.last, desk_.queries + rows.first * dims_,
                  rows.last - rows.first, desk_.scores + (rows.first - first_row) * PIECE, PIECE);
  }

  void soften_row(int64_t row, int64_t first_row, Range seen, const Sums& part) const {
    if (seen.is_empty()) return;
    const auto& scales = desk_.piece->scales;
    const bool is_coded = layer_.is_coded(), is_asymmetric = layer_.is_asymmetric();
    const PieceScales used{is_coded ? scales[0] : nullptr, is_asymmetric ? scales[1] : nullptr,
                           is_coded ? scales[2] : nullptr, is_asymmetric ? scales[3] : nullptr};
    const PartStats stats = soften(desk_.scores + (row - first_row) * PIECE, seen.first, seen.last,
                                   used, desk_.query_sums[row], layer_.rule);
    part.state(row) = {stats.top, stats.total};
    // all dimensions of a token's values have its least number in common
    for (int64_t i = 0; i < dims_; i += LANES) store(part.row(row) + i, Floats(stats.least));
  }

  // Adds the values of tokens to a group's rows, to each those that it sees.
  template <class Kind>
  void weigh(int64_t piece, Range rows, int64_t first_row, Range tokens, const Sums& part) const {
    const Range of_first = layer_.seen(tile_, rows.first, piece).within(tokens);
    const Range of_last = layer_.seen(tile_, rows.last - 1, piece).within(tokens);
    if (of_first.first == of_last.first && of_first.last == of_last.last)
      weigh_rows<Kind>(rows, first_row, of_first, part);
    else
      weigh_ragged<Kind>(piece, rows, first_row, tokens, {of_last.first, of_first.last}, part);
  }

  // The same where all of them see the same tokens.
  template <class Kind>
  void weigh_rows(Range rows, int64_t first_row, Range tokens, const Sums& part) const {
    if (tokens.is_empty()) return;
    const Piece& data = *desk_.piece;
    const ValueWalk values{data.values, data.values_ahead, data.token_bytes, tokens.first,
                           tokens.last};
    weigh_all<Kind>(values, dims_, desk_.scores + (rows.first - first_row) * PIECE, PIECE,
                    rows.last - rows.first, part.row(rows.first), part.stride());
  }

  // The same where they do not: what they have in common at once, what comes before and after row
  // by row, so that each takes its tokens in rising order and none that it does not see.
  template <class Kind>
  void weigh_ragged(int64_t piece, Range rows, int64_t first_row, Range tokens, Range common,
                    const Sums& part) const {
    const auto weigh_each = [&](Range some) {
      for (int64_t row = rows.first; row < rows.last; row++)
        weigh_rows<Kind>({row, row + 1}, first_row, layer_.seen(tile_, row, piece).within(some),
                         part);
    };
    if (common.is_empty()) return weigh_each(tokens);
    weigh_each({tokens.first, common.first});
    weigh_rows<Kind>(rows, first_row, common, part);
    weigh_each({common.last, tokens.last});
  }

  const Layer& layer_;
  const AttentionTile& tile_;
  const Desk& desk_;
  const PageReader reader_;
  const int64_t head_, rows_, groups_, dims_;
  const Sums sums_;
};

}  // namespace octavo
