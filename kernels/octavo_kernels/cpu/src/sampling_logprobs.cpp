// Log-probabilities of chosen and of the likeliest tokens.
//
// Shared between threads as sampling.cpp says. Knows the order of steps. Does not know how tokens
// are weighed or selected.
#include "operations.h"
#include "sampling_rows.h"
#include "sizes.h"

namespace octavo {

namespace {

class Scoring {
 public:
  Scoring(const Logprobs& a, Worker& worker)
      : a_(a), worker_(worker), blocks_(divide_up(a.width, BLOCK_IDS)) {}

  void run() {
    const int64_t entries = *a_.entries, parts = parts_of(entries, blocks_, worker_.num_threads);
    if (parts == 1) {
      worker_.share(entries, [&](int64_t entry) {
        scan(entry, 0, blocks_);
        weigh(entry, 0, blocks_);
        finish(entry);
      });
      return;
    }
    share_blocks(entries, parts, [&](int64_t entry, int64_t i, int64_t n) { scan(entry, i, n); });
    share_blocks(entries, parts, [&](int64_t entry, int64_t i, int64_t n) { weigh(entry, i, n); });
    worker_.share(entries, [&](int64_t entry) { finish(entry); });
  }

 private:
  template <class Work>
  void share_blocks(int64_t entries, int64_t parts, Work&& work) {
    worker_.share(entries * parts, [&](int64_t piece) {
      const int64_t entry = piece / parts, part = piece % parts;
      work(entry, blocks_ * part / parts, blocks_ * (part + 1) / parts);
    });
  }

  const float* logits(int64_t entry) const { return a_.logits + a_.rows[entry] * a_.stride; }
  RowMemory memory(int64_t entry) const { return {worker_.shared, entry, blocks_}; }

  void scan(int64_t entry, int64_t first, int64_t last) {
    find_tops(Blocks(logits(entry), a_.width), first, last, memory(entry).tops);
  }

  void weigh(int64_t entry, int64_t first, int64_t last) {
    const RowMemory memory = this->memory(entry);
    const float best = best_of(memory.tops, blocks_ * GROUPS);
    if (!std::isfinite(best)) return;
    const Blocks x(logits(entry), a_.width);
    sum_weights(x, first, last, Weights(best, 1.0f), memory.tops, memory.sums);
  }

  void finish(int64_t entry) {
    const RowMemory memory = this->memory(entry);
    const float best = best_of(memory.tops, blocks_ * GROUPS);
    const Blocks x(logits(entry), a_.width);
    const float value = logits(entry)[a_.token_ids[entry]];
    const bool is_good = std::isfinite(best);
    double total = 0.0;
    for (int64_t block = 0; is_good && block < blocks_; block++) total += memory.sums[block];
    const double norm = is_good ? double(best) + std::log(total)
                                : std::numeric_limits<double>::quiet_NaN();
    a_.chosen[entry] = float(double(value) - norm);
    a_.ranks[entry] = 1 + count_above(x, value, is_good ? memory.tops : nullptr);
    int64_t* ids = a_.top_ids + a_.starts[entry];
    float* logprobs = a_.top_logprobs + a_.starts[entry];
    if (is_good) {
      write_top(entry, {x, memory.tops, best}, norm, ids, logprobs);
    } else {
      for (int64_t i = 0; i < a_.num_top[entry]; i++) ids[i] = i;
      std::fill(logprobs, logprobs + a_.num_top[entry], float(norm));
    }
  }

  // How many numbers are larger; `tops` may be null.
  static int64_t count_above(const Blocks& x, float value, const float* tops) {
    const Floats next_value(std::nextafter(value, INFINITE));
    int64_t count = 0;
    for (int64_t group = 0; group < x.count * GROUPS; group++) {
      if (tops != nullptr && !(tops[group] > value)) continue;
      const float* numbers = x.group(group);
      for (int64_t i = 0; i < GROUP_IDS; i += LANES)
        count += __builtin_popcount(at_least(load(numbers + i), next_value));
    }
    return count;
  }

  void write_top(int64_t entry, const SelectionRow& row, double norm, int64_t* ids,
                 float* logprobs) {
    const int64_t wanted = a_.num_top[entry];
    if (wanted == 0) return;
    const RowScratch scratch(worker_.scratch(), blocks_);
    Cut cut{-INFINITE};
    if (wanted < a_.width) {
      const float bound = bound_of_largest(row, wanted, -INFINITE, scratch);
      const Ones ones;
      Selection<Ones>(row, ones, *scratch.histogram, scratch.entries)
          .find(bound, double(wanted), cut);
    } else {
      cut.end = a_.width;
    }
    const int64_t count = collect(row, cut.value, INFINITE, cut, scratch.entries, wanted);
    std::sort(scratch.entries, scratch.entries + count);
    for (int64_t i = 0; i < count; i++) {
      ids[i] = id_of_entry(scratch.entries[i]);
      logprobs[i] = float(double(value_of_entry(scratch.entries[i])) - norm);
    }
  }

  const Logprobs& a_;
  Worker& worker_;
  const int64_t blocks_;
};

}  // namespace

void logprobs(const Logprobs& a, Worker& worker) {
  if (*a.entries > 0) Scoring(a, worker).run();
}

}  // namespace octavo
