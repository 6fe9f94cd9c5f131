// Edits of a row of logits, in place: ids that are kept, biases, penalties, bans, masks.
//
// Formulas and rounding are those of `octavo_kernels.reference.edits`. Knows one row. Does not
// know who asks for an edit.
#pragma once

#include "operations.h"
#include "sampling_row.h"

namespace octavo {

enum class EditKind : int64_t { keep_only, add, penalise, ban, mask };

inline bool has_unknown_id(const SamplingEdit& edit, int64_t width) {
  if (edit.kind == int64_t(EditKind::mask)) return false;
  uint64_t highest = 0;  // what is negative counts as large
  for (int64_t i = 0; i < edit.count; i++) highest = std::max(highest, uint64_t(edit.ids[i]));
  return edit.count > 0 && highest >= uint64_t(width);
}

// `kept`: room for edit.count floats.
inline void keep_only(const SamplingEdit& edit, float* x, int64_t width, float* kept) {
  for (int64_t i = 0; i < edit.count; i++) kept[i] = x[edit.ids[i]];
  std::fill(x, x + width, -INFINITE);
  for (int64_t i = 0; i < edit.count; i++) x[edit.ids[i]] = kept[i];
}

inline void penalise(const SamplingEdit& edit, float* x) {
  for (int64_t i = 0; i < edit.count; i++) {
    float& logit = x[edit.ids[i]];
    float value = logit > 0.0f ? logit / edit.repetition : logit * edit.repetition;
    value -= edit.frequency * float(edit.counts[i]);
    value -= edit.presence * float(edit.counts[i] > 0);
    logit = value;
  }
}

// Applies an edit, but for a mask, to a row. `memory`: as for `keep_only`.
inline void apply_edit(const SamplingEdit& edit, float* x, int64_t width, float* memory) {
  switch (EditKind(edit.kind)) {
    case EditKind::keep_only:
      keep_only(edit, x, width, memory);
      break;
    case EditKind::add:
      for (int64_t i = 0; i < edit.count; i++) x[edit.ids[i]] += edit.adds[i];
      break;
    case EditKind::penalise:
      penalise(edit, x);
      break;
    case EditKind::ban:
      for (int64_t i = 0; i < edit.count; i++) x[edit.ids[i]] = -INFINITE;
      break;
    case EditKind::mask:
      break;
  }
}

// Keeps the logits of ids [first, last) whose bits are set; NaN stays NaN. first: a multiple of 32.
inline void apply_mask(const uint32_t* mask, float* x, int64_t first, int64_t last) {
  for (int64_t word = first / 32; word * 32 < last; word++) {
    const uint32_t bits = mask[word];
    float* own = x + word * 32;
    if (bits == 0xFFFFFFFFu) continue;
    const int64_t count = std::min<int64_t>(32, last - word * 32);
    for (int64_t i = 0; i < count; i++) {
      const float cap = bits >> i & 1 ? INFINITE : -INFINITE;
      own[i] = cap < own[i] ? cap : own[i];
    }
  }
}

}  // namespace octavo
