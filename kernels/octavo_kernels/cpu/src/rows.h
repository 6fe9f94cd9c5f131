// Operations whose rows do not need one another: how each is made for some of its rows alone.
//
// Knows arguments. Does not know what is computed.
#pragma once

#include "operations.h"

namespace octavo {

// Moves arguments on by `n` rows; the count stays.
inline void skip_rows(RmsNorm& a, int64_t n) {
  a.out += n * a.out_stride;
  a.x += n * a.x_stride;
}
inline void skip_rows(AddRmsNorm& a, int64_t n) {
  a.out += n * a.width;
  a.residual += n * a.width;
  a.delta += n * a.width;
}
inline void skip_rows(Rotary& a, int64_t n) {
  a.x += n * a.row_stride;
  a.positions += n;
}
inline void skip_rows(GatedActivation& a, int64_t n) {
  a.out += n * a.width;
  a.gate_up += n * 2 * a.width;
}
inline void skip_rows(Elementwise& a, int64_t n) { a.x += n * a.width; }
inline void skip_rows(Linear& a, int64_t n) {
  a.out += n * a.out_stride;
  a.x += n * a.x_stride;
}
inline void skip_rows(Embedding& a, int64_t n) {
  a.out += n * a.columns;
  a.ids += n;
}
inline void skip_rows(WriteKv& a, int64_t n) {
  a.k += n * a.k_stride;
  a.v += n * a.v_stride;
  a.slots += n;
}

template <class Arguments>
const int64_t*& count_of(Arguments& a) {
  return a.rows;
}
inline const int64_t*& count_of(WriteKv& a) { return a.tokens; }

// Shared memory that an operation needs for so many rows.
template <class Arguments>
int64_t shared_bytes(const Arguments&, int64_t) {
  return 0;
}
inline int64_t shared_bytes(const Linear& a, int64_t rows) { return linear_bytes(rows, a.columns); }

// Whether an operation takes over what the call before it left in the shared memory.
template <class Arguments>
bool follows(const Arguments&) {
  return false;
}
inline bool follows(const Linear& a) { return a.is_laid_out; }

}  // namespace octavo
