// Draws a token id from each row of logits.
//
// Where there are many rows, a thread takes a row through all steps while it lies in its cache;
// where there are few, threads share the steps that read whole rows. Knows the order of steps. Does
// not know how rows are edited, cut or drawn from.
#include "sampling_edits.h"
#include "sampling_rows.h"
#include "sizes.h"

namespace octavo {

namespace {

class Sampling {
 public:
  Sampling(const Sample& a, Worker& worker)
      : a_(a), worker_(worker), blocks_(divide_up(a.width, BLOCK_IDS)) {}

  void run() {
    const int64_t rows = *a_.rows, parts = parts_of(rows, blocks_, worker_.num_threads);
    if (parts == 1) {
      worker_.share(rows, [&](int64_t row) {
        edit(row);
        scan(row, 0, blocks_);
        weigh(row, 0, blocks_);
        finish(row);
      });
      return;
    }
    worker_.share(rows, [&](int64_t row) { edit(row); });
    share_blocks(rows, parts, [&](int64_t row, int64_t i, int64_t n) { scan(row, i, n); });
    share_blocks(rows, parts, [&](int64_t row, int64_t i, int64_t n) { weigh(row, i, n); });
    worker_.share(rows, [&](int64_t row) { finish(row); });
  }

 private:
  template <class Work>
  void share_blocks(int64_t rows, int64_t parts, Work&& work) {
    worker_.share(rows * parts, [&](int64_t piece) {
      const int64_t row = piece / parts, part = piece % parts;
      work(row, blocks_ * part / parts, blocks_ * (part + 1) / parts);
    });
  }

  float* logits(int64_t row) const { return a_.logits + row * a_.stride; }
  RowMemory memory(int64_t row) const { return {worker_.shared, row, blocks_}; }
  bool has_top_k(int64_t row) const { return a_.top_k[row] > 0 && a_.top_k[row] < a_.width; }

  void edit(int64_t row) {
    a_.is_bad[row] = 0;
    for (int64_t i = 0; i < *a_.num_edits; i++) {
      const SamplingEdit& edit = a_.edits[i];
      if (edit.row != row) continue;
      if (has_unknown_id(edit, a_.width))
        a_.is_bad[row] = 2;
      else
        apply_edit(edit, logits(row), a_.width, worker_.scratch().get<float>(edit.count));
    }
  }

  void scan(int64_t row, int64_t first, int64_t last) {
    for (int64_t i = 0; i < *a_.num_edits; i++)
      if (a_.edits[i].row == row && a_.edits[i].kind == int64_t(EditKind::mask))
        apply_mask(a_.edits[i].mask, logits(row), first * BLOCK_IDS,
                   std::min(a_.width, last * BLOCK_IDS));
    find_tops(Blocks(logits(row), a_.width), first, last, memory(row).tops);
  }

  // Weighs the tokens of a row from which a token is drawn, as far as that is known before top-k.
  void weigh(int64_t row, int64_t first, int64_t last) {
    const RowMemory memory = this->memory(row);
    const float best = best_of(memory.tops, blocks_ * GROUPS);
    if (a_.temperature[row] <= 0 || has_top_k(row) || !std::isfinite(best)) return;
    const Blocks x(logits(row), a_.width);
    sum_weights(x, first, last, weights_of(row, best), memory.tops, memory.sums);
  }

  // What tokens weigh before top-k and top-p.
  Weights weights_of(int64_t row, float best) const {
    Weights weights(best, a_.temperature[row]);
    if (a_.min_p[row] > 0) {
      const double span = double(a_.temperature[row]) * std::log(a_.min_p[row]);
      const double bound = std::min(double(best), double(best) + span);
      float value = float(std::max(bound, -double(FLT_MAX)));
      if (double(value) < bound) value = std::nextafter(value, INFINITE);
      weights.cut.value = value;
    }
    return weights;
  }

  void finish(int64_t row) {
    const RowMemory memory = this->memory(row);
    const float best = best_of(memory.tops, blocks_ * GROUPS);
    a_.ids[row] = 0;
    if (!std::isfinite(best) && a_.is_bad[row] == 0) a_.is_bad[row] = 1;
    if (a_.is_bad[row] != 0) return;
    const Blocks x(logits(row), a_.width);
    if (a_.temperature[row] <= 0) {
      a_.ids[row] = first_of(x, memory.tops, best);
      return;
    }
    const RowScratch scratch(worker_.scratch(), blocks_);
    Weights weights = weights_of(row, best);
    const SelectionRow selected{x, memory.tops, best};
    if (has_top_k(row)) keep_top_k(row, selected, scratch, weights, memory.sums);
    if (a_.top_p[row] < 1) keep_top_p(row, selected, scratch, weights, memory.sums);
    a_.ids[row] = draw(x, a_.width, weights, memory.sums, a_.uniforms[row], scratch.ends);
  }

  // The first id of the largest logit.
  static int64_t first_of(const Blocks& x, const float* tops, float best) {
    int64_t group = 0, i = 0;
    while (tops[group] != best) group++;
    const float* numbers = x.group(group);
    while (numbers[i] != best) i++;
    return group * GROUP_IDS + i;
  }

  void keep_top_k(int64_t row, const SelectionRow& selected, const RowScratch& scratch,
                  Weights& weights, float* sums) {
    const int64_t k = a_.top_k[row];
    const float bound = bound_of_largest(selected, k, weights.cut.value, scratch);
    const Ones ones;
    Selection<Ones>(selected, ones, *scratch.histogram, scratch.entries)
        .find(bound, double(k), weights.cut);
    sum_weights(selected.x, 0, blocks_, weights, selected.tops, sums);
  }

  void keep_top_p(int64_t row, const SelectionRow& selected, const RowScratch& scratch,
                  Weights& weights, float* sums) {
    double total = 0.0;
    for (int64_t block = 0; block < blocks_; block++) total += sums[block];
    const double top_p = a_.top_p[row];
    // all below this weigh no more than half of what is to be left out
    const double light = 0.5 * (1.0 - top_p) * total / double(a_.width);
    const double bound = double(weights.best) + double(a_.temperature[row]) * std::log(light);
    const float low = bound < double(weights.cut.value) ? weights.cut.value
                                                        : std::min(float(bound), weights.best);
    Cut cut = weights.cut;
    Selection<Weights>(selected, weights, *scratch.histogram, scratch.entries)
        .find(low, top_p * total, cut);
    weights.cut = cut;
    sum_weights(selected.x, 0, blocks_, weights, selected.tops, sums);
  }

  const Sample& a_;
  Worker& worker_;
  const int64_t blocks_;
};

}  // namespace

void sample(const Sample& a, Worker& worker) {
  if (*a.rows > 0) Sampling(a, worker).run();
}

}  // namespace octavo

using namespace octavo;

// Shared memory that `sample` and `logprobs` need for so many rows.
extern "C" int64_t octavo_sampling_bytes(int64_t rows, int64_t width) {
  const int64_t blocks = divide_up(width, BLOCK_IDS);
  return rows * RowMemory::floats(blocks) * int64_t(sizeof(float));
}

// Writes noise in [0, 1) by row: a hash of seed, position, choice and purpose.
extern "C" int64_t octavo_uniforms(const uint64_t* seeds, const int64_t* positions,
                                   const int64_t* choices, int64_t purpose, int64_t rows,
                                   double* out) {
  for (int64_t i = 0; i < rows; i++) {
    const Words counter{
        {uint32_t(positions[i]), uint32_t(choices[i]), uint32_t(purpose), 0}};
    out[i] = philox(counter, seeds[i]).uniform(0);
  }
  return rows;
}
