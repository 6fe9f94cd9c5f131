// Reduces a piece of codes: queries times keys and weights times values as integers.
//
// Knows rows and what they see. Does not know sequences or pages.
#include "attention_codes.h"

#include "attention_weights.h"
#include "rounding.h"

namespace octavo {

namespace {

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
    const Range tokens{vectors_.first * LANES, vectors_.last * LANES};
    LargestScale largest(data_.value_scales);
    WeightScale scales[GROUP_ROWS];
    for (int64_t i = 0; i < count; i++) {
      const int64_t row = rows_.first + i;
      scales[i] = put_weights(unit_, {row, piece_, desk.scores + i * PIECE, tokens}, largest,
                              ShortWeights{desk.weights + i * PIECE}, part_.state(row));
    }
    const CodedValues values{data_.values, is_first ? data_.values_ahead : nullptr,
                             data_.value_bytes, vectors_.first, vectors_.last};
    const bool is_int4 = unit_.layer.page.format == CacheFormat::INT4;
    const auto weigh = is_int4 ? weigh_all_codes<NibbleValues> : weigh_all_codes<ByteValues>;
    weigh(values, unit_.dims, desk.weights, scales, count, part_.row(rows_.first), stride);
  }

 private:
  const Unit& unit_;
  const Piece& data_;
  const int64_t piece_;
  const Range rows_, vectors_;
  const Sums& part_;
};

}  // namespace

// The queries, scaled and rotated, as codes: row by row for tiles, else in groups of rows.
void load_code_queries(const Unit& unit) {
  const int64_t dims = unit.dims, head_dim = unit.layer.a.head_dim;
  const Floats scale(unit.layer.rule.query_scale / unit.layer.rotated);
  float* q = unit.desk.queries;
  int8_t* codes = reinterpret_cast<int8_t*>(q + dims);
  const bool is_row_by_row = is_on_tiles(unit);
  for (int64_t group = 0; group < unit.groups; group++) {
    const Range rows = unit.rows_of(group);
    const int64_t count = is_row_by_row ? 1 : rows.last - rows.first;
    for (int64_t row = rows.first; row < rows.last; row++) {
      for (int64_t i = 0; i < dims; i += LANES)
        store(q + i, load_first(unit.query(row) + i, head_dim - i) * scale);
      rotate(q, dims, rotated_dims(head_dim));
      unit.desk.query_scales[row] = round_to_bytes(q, dims, codes);
      int8_t* out = unit.desk.query_codes;
      out += is_row_by_row ? row * dims : rows.first * dims + (row - rows.first) * 4;
      int32_t total = 0;
      for (int64_t i = 0; i < dims; i++) total += codes[i];
      for (int64_t i = 0; i < dims; i += 4) std::memcpy(out + i * count, codes + i, 4);
      unit.desk.query_sums[row] = total;
    }
  }
}

void reduce_codes(const Unit& unit, int64_t piece, const Sums& part) {
  if (is_on_tiles(unit)) return reduce_on_tiles(unit, piece, part);
  for (int64_t group = 0; group < unit.groups; group++)
    Reduction(unit, piece, unit.rows_of(group), part).run();
}

}  // namespace octavo
