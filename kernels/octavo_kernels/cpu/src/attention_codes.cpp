// Reduces a piece of codes: queries times keys and weights times values as integers.
//
// Knows rows and what they see. Does not know sequences or pages.
#include "attention_codes.h"

#include "attention_unit.h"
#include "rounding.h"

namespace octavo {

namespace {

// Lanes of p[i ...] whose number is in [first, last); the others 0.
Floats load_between(const float* p, int64_t i, int64_t first, int64_t last) {
  if (i >= first && i + LANES <= last) return load(p + i);
  alignas(64) float lanes[LANES];
  for (int64_t j = 0; j < LANES; j++) lanes[j] = i + j >= first && i + j < last ? p[i + j] : 0.0f;
  return load(lanes);
}

// One group of rows and one piece.
class Reduction {
 public:
  Reduction(const Unit& unit, int64_t piece, Range rows, const Sums& part)
      : unit_(unit),
        data_(*unit.desk.piece),
        piece_(piece),
        rows_(rows),
        vectors_(unit.seen_by(rows, piece).vectors()),
        part_(part) {}

  void run() const {
    if (vectors_.is_empty()) return;
    const int64_t count = rows_.last - rows_.first, stride = part_.stride();
    const Desk& desk = unit_.desk;
    // the first group fetches for the others
    const bool is_first = rows_.first == 0;
    const CodedKeys keys{data_.keys, is_first ? data_.keys_ahead : nullptr, data_.key_scales,
                         data_.row_bytes, unit_.dims};
    const CodedQueries queries{desk.query_codes + rows_.first * unit_.dims,
                               desk.query_scales + rows_.first, desk.query_sums + rows_.first};
    dot_all_codes(keys, vectors_.first, vectors_.last, queries, count, desk.scores);
    WeightScale scales[GROUP_ROWS];
    for (int64_t i = 0; i < count; i++) scales[i] = soften_row(i);
    const CodedValues values{data_.values, is_first ? data_.values_ahead : nullptr,
                             data_.value_bytes, vectors_.first, vectors_.last};
    const auto weigh =
        is_asymmetric() ? weigh_all_codes<NibbleValues> : weigh_all_codes<ByteValues>;
    weigh(values, unit_.dims, desk.weights, scales, count, part_.row(rows_.first), stride);
  }

 private:
  bool is_asymmetric() const { return unit_.layer.page.format == CacheFormat::INT4; }

  // Turns row i of the scores into weights: of what it does not see, 0.
  WeightScale soften_row(int64_t i) const {
    int16_t* weights = unit_.desk.weights + i * PIECE;
    const Range seen = unit_.seen(rows_.first + i, piece_);
    if (seen.is_empty()) {
      std::fill(weights + vectors_.first * LANES, weights + vectors_.last * LANES, int16_t(0));
      return {0.0f, 0.0f};
    }
    const ScoreRow row{unit_.desk.scores + i * PIECE, seen.first, seen.last};
    finish_scores(row, unit_.layer.rule);
    const float most = largest_scale(row);
    // the weight of the largest score and scale is the largest
    const Floats factor(most > 1e-30f ? MOST_WEIGHT / most : 0.0f);
    // what the values' offsets add up to, by the weights as they are rounded
    Floats offsets(0.0f);
    const float top = largest_of(row);
    const float total = weigh_scores(row, top, [&](int64_t j, Floats shares) {
      const Ints rounded = to_ints(shares * (load(data_.value_scales + j) * factor));
      store_shorts(weights + j, rounded);
      if (is_asymmetric())
        offsets = fma(to_floats(rounded),
                      load_between(data_.value_offsets, j, seen.first, seen.last), offsets);
    });
    part_.state(rows_.first + i) = {top, total};
    std::fill(weights + vectors_.first * LANES, weights + seen.first, int16_t(0));
    std::fill(weights + seen.last, weights + vectors_.last * LANES, int16_t(0));
    const float unit = most / MOST_WEIGHT;
    return {unit, unit * sum(offsets)};
  }

  // The largest scale of the values that a row sees; NaN where one of them is.
  float largest_scale(const ScoreRow& row) const {
    Floats most(0.0f), poison(0.0f);
    for (int64_t j = row.begin(); j < row.end(); j += LANES) {
      const Floats scale = load_between(data_.value_scales, j, row.first, row.last);
      most = max(most, scale);
      poison = fma(scale, Floats(0.0f), poison);
    }
    return largest(most) + sum(poison);
  }

  const Unit& unit_;
  const Piece& data_;
  const int64_t piece_;
  const Range rows_, vectors_;
  const Sums& part_;
};

}  // namespace

// The queries, scaled and rotated, as codes in groups of rows.
void load_code_queries(const Unit& unit) {
  const int64_t dims = unit.dims, head_dim = unit.layer.a.head_dim;
  const Floats scale(unit.layer.rule.query_scale / unit.layer.rotated);
  float* q = unit.desk.queries;
  int8_t* codes = reinterpret_cast<int8_t*>(q + dims);
  for (int64_t group = 0; group < unit.groups; group++) {
    const Range rows = unit.rows_of(group);
    const int64_t count = rows.last - rows.first;
    for (int64_t row = rows.first; row < rows.last; row++) {
      for (int64_t i = 0; i < dims; i += LANES)
        store(q + i, load_first(unit.query(row) + i, head_dim - i) * scale);
      rotate(q, dims, rotated_dims(head_dim));
      unit.desk.query_scales[row] = round_to_bytes(q, dims, codes);
      int8_t* out = unit.desk.query_codes + rows.first * dims + (row - rows.first) * 4;
      int32_t total = 0;
      for (int64_t i = 0; i < dims; i++) total += codes[i];
      for (int64_t i = 0; i < dims; i += 4) std::memcpy(out + i * count, codes + i, 4);
      unit.desk.query_sums[row] = total;
    }
  }
}

void reduce_codes(const Unit& unit, int64_t piece, const Sums& part) {
  for (int64_t group = 0; group < unit.groups; group++)
    Reduction(unit, piece, unit.rows_of(group), part).run();
}

}  // namespace octavo
