// Finds where sums over the likeliest tokens of a row reach a goal, without sorting the row.
//
// Logits are taken as integers of the same order. Amounts are summed in bins of those; then the
// one bin in which the sum crosses the goal is looked into in the same way, or sorted where it
// holds little. Knows floats, ids and amounts. Does not know what an amount is.
#pragma once

#include "sampling_row.h"

namespace octavo {

// Integers in the order of floats; -0 is 0.
inline uint32_t key_of(float x) {
  const float canonical = x + 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &canonical, 4);
  return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}
inline float value_of(uint32_t key) {
  const uint32_t bits = key ^ (key >> 31 ? 0x80000000u : 0xFFFFFFFFu);
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// A token as a number that sorts by logit, the largest first, then by id.
using Entry = uint64_t;
inline Entry entry_of(float x, int64_t id) {
  return Entry(~key_of(x)) << 32 | Entry(uint32_t(id));
}
inline uint32_t key_of_entry(Entry entry) { return ~uint32_t(entry >> 32); }
inline float value_of_entry(Entry entry) { return value_of(key_of_entry(entry)); }
inline int64_t id_of_entry(Entry entry) { return int64_t(uint32_t(entry)); }

struct KeyRange {
  uint32_t low, high;  // both inside
};

// A place in a sum: a range of keys, or of entries, and what lies before it.
struct Crossing {
  KeyRange range;
  double before;
  bool is_found;
};

// Sums of amounts by ranges of keys.
class Histogram {
 public:
  void clear(KeyRange range) {
    range_ = range;
    shift_ = 0;
    while ((range.high - range.low) >> shift_ >= BINS) shift_++;
    std::fill(amounts_, amounts_ + BINS + GROUP_IDS, 0.0);
  }
  void add(const uint32_t* keys, const float* amounts, int64_t count) {
    uint32_t bins[GROUP_IDS];
    const uint32_t width = range_.high - range_.low;
    for (int64_t i = 0; i < count; i++) {
      const uint32_t down = range_.high - keys[i];
      // what is outside goes to places apart from each other: to add twice to one takes longer
      bins[i] = down <= width ? down >> shift_ : BINS + uint32_t(i);
    }
    for (int64_t i = 0; i < count; i++) amounts_[bins[i]] += double(amounts[i]);
  }
  // The first bin with which the sum, `before` all bins, reaches the goal; the last that holds
  // anything where none does.
  Crossing find(double before, double goal) const {
    double sum = before;
    Crossing last{range_, before, false};
    for (uint32_t bin = 0; bin <= (range_.high - range_.low) >> shift_; bin++) {
      if (amounts_[bin] == 0.0) continue;
      const uint32_t high = range_.high - (bin << shift_);
      const uint32_t most = (1u << shift_) - 1;
      last = {{high - std::min(most, high - range_.low), high}, sum, false};
      sum += amounts_[bin];
      if (sum >= goal) {
        last.is_found = true;
        break;
      }
    }
    return last;
  }

 private:
  static constexpr uint32_t BINS = 1024;

  double amounts_[BINS + GROUP_IDS];
  KeyRange range_;
  int shift_;
};

// Each token as one.
struct Ones {
  void operator()(const float*, int64_t count, int64_t, float* out) const {
    std::fill(out, out + count, 1.0f);
  }
};

// A row to select from: its numbers, and the largest of each group.
struct SelectionRow {
  const Blocks& x;
  const float* tops;
  float best;
};

// Writes the entries of a row's tokens from `low` up to below `high` that a cut keeps, by ascending
// id; returns how many they are. It stops where they are more than `most`.
inline int64_t collect(const SelectionRow& row, float low, float high, const Cut& cut,
                       Entry* entries, int64_t most) {
  int64_t count = 0;
  for (int64_t group = 0; group < row.x.count * GROUPS && count <= most; group++) {
    if (!(row.tops[group] >= low)) continue;
    const float* numbers = row.x.group(group);
    for (int64_t i = 0; i < GROUP_IDS; i += LANES) {
      const Floats next = load(numbers + i);
      uint32_t lanes = at_least(next, Floats(low)) & ~at_least(next, Floats(high));
      for (; lanes != 0; lanes &= lanes - 1) {
        const int64_t place = i + __builtin_ctz(lanes);
        const int64_t id = group * GROUP_IDS + place;
        entries[count] = entry_of(numbers[place], id);
        count += numbers[place] != cut.value || id < cut.end;
      }
    }
  }
  return count;
}

// Finds the cut with which the amounts of what is kept, of the tokens from `bound` up, reach a
// goal. It leaves `cut` alone where they do not.
template <class Amounts>
class Selection {
 public:
  // entries: room for one more than the row has numbers, in whole blocks.
  Selection(const SelectionRow& row, const Amounts& amounts, Histogram& histogram, Entry* entries)
      : row_(row), amounts_(amounts), histogram_(histogram), entries_(entries) {}

  void find(float bound, double goal, Cut& cut) {
    // `is_found`: whether the goal is certain to be reached in there, but for rounding
    Crossing place{{key_of(bound), key_of(row_.best)}, 0.0, false};
    int64_t count = collect(row_, bound, INFINITE, cut, entries_, FEW);
    if (count > FEW) {
      place = cross_row(place.range, goal);
      if (!place.is_found) return;
      const float low = value_of(place.range.low), above = value_of(place.range.high + 1);
      count = collect(row_, low, above, cut, entries_, std::numeric_limits<int64_t>::max());
    }
    while (count > SORTED && place.range.high > place.range.low) {
      const Crossing inner = cross_entries(place, count, goal);
      if (!inner.is_found && !place.is_found) return;
      place = {inner.range, inner.before, true};
      count = narrow(place.range, count);
    }
    int64_t last = count > SORTED ? tied(count, place.before, goal)
                                  : sorted(count, place.before, goal);
    if (last == count && !place.is_found) return;
    last = std::min(last, count - 1);
    cut = {value_of_entry(entries_[last]), id_of_entry(entries_[last]) + 1};
  }

 private:
  // Entries that are worth writing down at once, where the bound is near.
  static constexpr int64_t FEW = 2048;
  // Entries that are sorted rather than summed in bins.
  static constexpr int64_t SORTED = 96;

  Crossing cross_row(KeyRange range, double goal) {
    const float bound = value_of(range.low);
    histogram_.clear(range);
    uint32_t keys[GROUP_IDS];
    alignas(64) float amounts[GROUP_IDS];
    for (int64_t group = 0; group < row_.x.count * GROUPS; group++) {
      if (!(row_.tops[group] >= bound)) continue;
      const float* numbers = row_.x.group(group);
      for (int64_t i = 0; i < GROUP_IDS; i++) keys[i] = key_of(numbers[i]);
      amounts_(numbers, GROUP_IDS, group * GROUP_IDS, amounts);
      histogram_.add(keys, amounts, GROUP_IDS);
    }
    return histogram_.find(0.0, goal);
  }

  Crossing cross_entries(const Crossing& place, int64_t count, double goal) {
    histogram_.clear(place.range);
    uint32_t keys[GROUP_IDS];
    alignas(64) float amounts[GROUP_IDS];
    for (int64_t first = 0; first < count; first += GROUP_IDS) {
      const int64_t live = std::min(GROUP_IDS, count - first);
      for (int64_t i = 0; i < live; i++) keys[i] = key_of_entry(entries_[first + i]);
      amounts_of(first, live, amounts);
      histogram_.add(keys, amounts, live);
    }
    return histogram_.find(place.before, goal);
  }

  // Keeps the entries inside of a range, in their order.
  int64_t narrow(KeyRange range, int64_t count) {
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
      const Entry entry = entries_[i];
      entries_[kept] = entry;
      kept += key_of_entry(entry) - range.low <= range.high - range.low;
    }
    return kept;
  }

  // The entry with which the goal is reached, all being of one logit, by ascending id; `count`
  // where none is.
  int64_t tied(int64_t count, double before, double goal) {
    alignas(64) float amounts[GROUP_IDS];
    amounts_of(0, 1, amounts);
    const double wanted = std::ceil((goal - before) / double(amounts[0]));
    return int64_t(std::max(1.0, std::min(wanted, double(count + 1)))) - 1;
  }

  // The same of few, of any logits.
  int64_t sorted(int64_t count, double before, double goal) {
    alignas(64) float amounts[GROUP_IDS];
    std::sort(entries_, entries_ + count);
    double sum = before;
    for (int64_t first = 0; first < count; first += GROUP_IDS) {
      const int64_t live = std::min(GROUP_IDS, count - first);
      amounts_of(first, live, amounts);
      for (int64_t i = 0; i < live; i++)
        if ((sum += double(amounts[i])) >= goal) return first + i;
    }
    return count;
  }

  void amounts_of(int64_t first, int64_t live, float* amounts) {
    alignas(64) float numbers[GROUP_IDS];
    std::fill(numbers, numbers + GROUP_IDS, -INFINITE);
    for (int64_t i = 0; i < live; i++) numbers[i] = value_of_entry(entries_[first + i]);
    amounts_(numbers, GROUP_IDS, KEPT_IDS, amounts);
  }

  const SelectionRow& row_;
  const Amounts& amounts_;
  Histogram& histogram_;
  Entry* entries_;
};

}  // namespace octavo
