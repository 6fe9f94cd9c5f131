// All operations: their arguments, and what each does.
//
// `octavo_kernels.cpu.calls` mirrors every struct field by field. Counts are read when the call
// runs; strides are in elements. Knows arguments alone.
#pragma once

#include <cstdint>

#include "team.h"

namespace octavo {

// ---------------------------------------------------------------- layers.cpp

// out[i] = normalised x[i] * weight, over the last dimension; out may be x.
// A row i of x is `heads` vectors of `width`, one after the other.
struct RmsNorm {
  float* out;
  const float* x;
  const float* weight;
  const int64_t* rows;
  int64_t out_stride, x_stride;  // between rows
  int64_t heads, width;
  float eps;
};
void rms_norm(const RmsNorm&, Worker&);

// residual += delta, in place, then out = normalised residual * weight.
struct AddRmsNorm {
  float* out;
  float* residual;
  const float* delta;
  const float* weight;
  const int64_t* rows;
  int64_t width;
  float eps;
};
void add_rms_norm(const AddRmsNorm&, Worker&);

// Rotates the first 2 * half dimensions of every head of x, in place: pairs are (i, i + half).
// table: [max_positions, 2, half], cosines then sines.
struct Rotary {
  float* x;
  const int64_t* positions;
  const float* table;
  const int64_t* rows;
  int64_t row_stride, head_stride;
  int64_t heads, half;
};
void rotary(const Rotary&, Worker&);

// out = act(gate) * up.  gate_up: [rows, 2 * width], gate first.
struct GatedActivation {
  float* out;
  const float* gate_up;
  const int64_t* rows;
  int64_t width;
  int64_t kind;  // 0 silu, 1 gelu by tanh
};
void gated_activation(const GatedActivation&, Worker&);

// x *= factor, or x = cap * tanh(x / cap), in place, over rows of `width`.
struct Elementwise {
  float* x;
  const int64_t* rows;
  int64_t width;
  int64_t kind;  // 0 multiply by `number`, 1 soft cap at `number`
  float number;
};
void elementwise(const Elementwise&, Worker&);

// out[i] = x[index[i]], rows of `width` floats.
struct GatherRows {
  float* out;
  const float* x;
  const int64_t* index;
  const int64_t* rows;
  int64_t width;
};
void gather_rows(const GatherRows&, Worker&);

// ---------------------------------------------------------------- linear.cpp

// out = x @ weight.T + bias.  weight: panels of `format`; bias may be null.
// Shared memory: `octavo_linear_bytes` for the most rows that there may be.
struct Linear {
  float* out;
  const float* x;
  const uint8_t* weight;
  const float* bias;
  const int64_t* rows;
  int64_t out_stride, x_stride;  // between rows
  int64_t columns, outputs;
  int64_t format;
  int64_t is_exact;     // activations stay floats
  int64_t is_laid_out;  // the shared memory holds x already: the call before had the same x
};
void linear(const Linear&, Worker&);

// out[i] = weight[ids[i]].  out: [rows, columns].
struct Embedding {
  float* out;
  const int64_t* ids;
  const uint8_t* weight;
  const int64_t* rows;
  int64_t columns;
  int64_t format;
};
void embedding(const Embedding&, Worker&);

}  // namespace octavo
