// Reduces a piece of floats or halves: products with keys, weights of these, sums of values.
//
// A row's sums over values take each token that it sees, in rising order, and no other: what it
// does not see may be NaN. Knows rows and what they see. Does not know sequences or pages.
#include "attention_kernels.h"
#include "attention_unit.h"

namespace octavo {

namespace {

// Tokens that all rows meet while these are in the first cache.
constexpr int64_t SPAN = 64;
// From so many groups of rows on, unpacking a piece once costs less than each time.
constexpr int64_t UNPACKED_GROUPS = 3;

// Turns the vectors of the piece at the desk into floats, and points it at those.
void unpack_halves(const Unit& unit, Range vectors) {
  Piece& piece = *unit.desk.piece;
  const int64_t dims = unit.dims, size = LANES * dims;
  float* keys = reinterpret_cast<float*>(unit.desk.unpacked) + vectors.first * size;
  float* values = keys + PIECE * dims;
  for (int64_t v = vectors.first; v < vectors.last; v++, keys += size, values += size) {
    for (int64_t i = 0; i < dims; i++)
      store(keys + i * LANES, CachedHalves::vector(piece.keys[v] + i * piece.row_bytes));
    for (int64_t i = 0; i < size; i += LANES)
      store(values + i, CachedHalves::vector(piece.values[v] + i * CachedHalves::BYTES));
    piece.keys[v] = reinterpret_cast<uint8_t*>(keys);
    piece.values[v] = reinterpret_cast<uint8_t*>(values);
  }
  piece.row_bytes = LANES * CachedFloats::BYTES;
  piece.value_bytes = dims * CachedFloats::BYTES;
  // there is nothing to fetch
  piece.keys_ahead = piece.values_ahead = nullptr;
}

// A few groups of rows, whose scores are at the desk, and one piece.
template <class Kind>
class Reduction {
 public:
  Reduction(const Unit& unit, int64_t piece, Range groups, const Sums& part)
      : unit_(unit),
        piece_(piece),
        groups_(groups),
        rows_{unit.rows_of(groups.first).first, unit.rows_of(groups.last - 1).last},
        part_(part) {}

  void run() const {
    each_span([&](Range rows, Range tokens) { multiply(rows, tokens); });
    // one after the other, so that rows are worked on while another's lanes are put together
    each_row([&](int64_t row, const ScoreRow& own) {
      finish_scores(own, unit_.layer.rule);
      part_.state(row).top = largest_of(own);
    });
    each_row([&](int64_t row, const ScoreRow& own) {
      part_.state(row).total = weigh_scores(
          own, part_.state(row).top,
          [&](int64_t i, Floats weights) { store(own.scores + i, weights); });
      std::memset(part_.row(row), 0, size_t(unit_.dims) * sizeof(float));
    });
    each_span([&](Range rows, Range tokens) { weigh(rows, tokens); });
  }

 private:
  // The first rows fetch what comes next for all.
  static bool is_fetching(Range rows) { return rows.first == 0; }
  float* scores(int64_t row) const { return unit_.desk.scores + (row - rows_.first) * PIECE; }

  // Calls work(rows, tokens) for spans of tokens, and for each group: one group reads each token
  // once, so that there is no need to keep them near.
  template <class Work>
  void each_span(Work&& work) const {
    const int64_t span = groups_.last - groups_.first > 1 ? SPAN : PIECE;
    const Range seen = unit_.seen_by(rows_, piece_);
    for (int64_t first = seen.first / span * span; first < seen.last; first += span)
      for (int64_t i = groups_.first; i < groups_.last; i++)
        work(unit_.rows_of(i), Range{first, first + span});
  }

  // Calls work(row, scores) for the rows that see some of the piece.
  template <class Work>
  void each_row(Work&& work) const {
    for (int64_t row = rows_.first; row < rows_.last; row++) {
      const Range seen = unit_.seen(row, piece_);
      if (!seen.is_empty()) work(row, ScoreRow{scores(row), seen.first, seen.last});
    }
  }

  // Leaves the products of a group's queries and the keys in the scores.
  void multiply(Range rows, Range tokens) const {
    const Piece& data = *unit_.desk.piece;
    const Range seen = unit_.seen_by(rows, piece_).within(tokens);
    if (seen.is_empty()) return;
    const KeyWalk keys{data.keys, is_fetching(rows) ? data.keys_ahead : nullptr, data.row_bytes,
                       unit_.dims};
    dot_all<Kind>(keys, seen.vectors().first, seen.vectors().last,
                  unit_.desk.queries + rows.first * unit_.dims, rows.last - rows.first,
                  scores(rows.first));
  }

  // Adds the values of tokens to a group's rows, to each those that it sees: what all see at once,
  // what comes before and after row by row.
  void weigh(Range rows, Range tokens) const {
    const Range of_first = unit_.seen(rows.first, piece_).within(tokens);
    const Range of_last = unit_.seen(rows.last - 1, piece_).within(tokens);
    if (of_first.first == of_last.first && of_first.last == of_last.last)
      return weigh_equally(rows, of_first);
    const auto weigh_each = [&](Range some) {
      for (int64_t row = rows.first; row < rows.last; row++)
        weigh_equally({row, row + 1}, unit_.seen(row, piece_).within(some));
    };
    const Range common{of_last.first, of_first.last};
    if (common.is_empty()) return weigh_each(tokens);
    weigh_each({tokens.first, common.first});
    weigh_equally(rows, common);
    weigh_each({common.last, tokens.last});
  }

  void weigh_equally(Range rows, Range tokens) const {
    if (tokens.is_empty()) return;
    const Piece& data = *unit_.desk.piece;
    const ValueWalk values{data.values, is_fetching(rows) ? data.values_ahead : nullptr,
                           data.value_bytes, tokens.first, tokens.last};
    weigh_all<Kind>(values, unit_.dims, scores(rows.first), rows.last - rows.first,
                    part_.row(rows.first), part_.stride());
  }

  const Unit& unit_;
  const int64_t piece_;
  const Range groups_, rows_;
  const Sums& part_;
};

template <class Kind>
void reduce_as(const Unit& unit, int64_t piece, const Sums& part) {
  for (int64_t group = 0; group < unit.groups; group += GROUPS_AT_ONCE) {
    const Range groups{group, std::min(unit.groups, group + GROUPS_AT_ONCE)};
    Reduction<Kind>(unit, piece, groups, part).run();
  }
}

}  // namespace

// The queries, scaled, in groups of rows: [dims][rows of the group] each.
void load_float_queries(const Unit& unit) {
  const int64_t head_dim = unit.layer.a.head_dim;
  const float scale = unit.layer.rule.query_scale;
  for (int64_t group = 0; group < unit.groups; group++) {
    const Range rows = unit.rows_of(group);
    const int64_t count = rows.last - rows.first;
    for (int64_t row = rows.first; row < rows.last; row++) {
      const float* q = unit.query(row);
      float* out = unit.desk.queries + rows.first * unit.dims + (row - rows.first);
      for (int64_t i = 0; i < head_dim; i++) out[i * count] = q[i] * scale;
      for (int64_t i = head_dim; i < unit.dims; i++) out[i * count] = 0.0f;
    }
  }
}

void reduce_floats(const Unit& unit, int64_t piece, const Sums& part) {
  if (unit.layer.page.format == CacheFormat::FLOAT32)
    return reduce_as<CachedFloats>(unit, piece, part);
  if (unit.groups < UNPACKED_GROUPS) return reduce_as<CachedHalves>(unit, piece, part);
  unpack_halves(unit, unit.seen_by({0, unit.rows}, piece).vectors());
  reduce_as<CachedFloats>(unit, piece, part);
}

}  // namespace octavo
