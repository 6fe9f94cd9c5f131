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
// Shared memory: `linear_bytes` for the most rows that there may be.
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
int64_t linear_bytes(int64_t rows, int64_t columns);

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

// ---------------------------------------------------------------- kv_cache.cpp, attention.cpp

// Stores k and v of a step's tokens at slots[i] = block * block_size + offset, distinct.
// pages: [blocks][kv_heads] pages of `octavo_page_bytes` bytes, 64-byte aligned.
struct WriteKv {
  uint8_t* pages;
  const float* k;
  const float* v;
  const int64_t* slots;
  const int64_t* tokens;
  int64_t k_stride, k_head_stride;  // between tokens, and between a token's heads
  int64_t v_stride, v_head_stride;
  int64_t kv_heads, head_dim;
  int64_t block_size, format;
};
void write_kv(const WriteKv&, Worker&);

// Attends with the tokens query_start[i] .. query_start[i + 1] of each sequence i, the last of
// which stands at seq_lens[i] - 1. Reads what these see, and nothing else.
// block_tables: [sequences][table_stride]. Shared memory: 4 * parts_floats bytes.
struct Attention {
  float* out;
  const float* q;
  const uint8_t* pages;
  const int64_t* sequences;
  const int64_t* query_start;
  const int64_t* seq_lens;
  const int32_t* block_tables;
  int64_t out_stride, out_head_stride;
  int64_t q_stride, q_head_stride;
  int64_t table_stride;
  int64_t heads, kv_heads, head_dim;
  int64_t block_size, format;
  int64_t window;        // positions seen, the own one included
  int64_t parts_floats;  // room for parts of tiles that several threads share
  float scale;
  float softcap;  // 0: none
};
void attention(const Attention&, Worker&);

// ---------------------------------------------------------------- lora.cpp

// Ranks first_rank .. first_rank + rank of a x, times b, change the outputs of so many panels: those
// from LANES * first_panel on.  b: [num_panels, rank, LANES], 0 where an output is not changed.
struct LowRankPiece {
  const void* b;
  int64_t first_rank, rank;
  int64_t first_panel, num_panels;
};

// What an adapter changes of one matrix; rank 0: nothing.  a: [rank / 4, vectors of columns, 4,
// LANES], 0 where there is no column, nor a rank: these come in whole groups of 4. Both factors
// hold floats, or halves.
struct LowRank {
  const void* a;
  const LowRankPiece* pieces;
  int64_t rank, num_pieces;
  int64_t is_half;
};

// The tokens of a step that one adapter changes.  tokens, scales: [num_tokens].
struct AdapterSegment {
  const int64_t* tokens;
  const float* scales;
  int64_t slot, num_tokens;
};

// The segments of a step, refilled before it runs; `num_tokens` is of all of them together.
struct AdapterSegments {
  const AdapterSegment* segments;
  int64_t count, num_tokens;
};

// out += scale * b (a x), for the tokens of the batch.  by_slot: [num_slots].
// Shared memory: 4 * max_rank bytes for each token of the batch; and `linear_bytes`, if it follows
// the linear layer whose result it changes, along with which it is made then.
struct Adapt {
  float* out;
  const float* x;
  const LowRank* by_slot;
  const AdapterSegments* batch;
  int64_t num_slots, max_rank;
  int64_t out_stride, x_stride;
  int64_t columns, outputs;
};
void adapt(const Adapt&, Worker&);

// ---------------------------------------------------------------- sampling*.cpp

// What is done to one row of logits before a token is drawn from it, in the order given.
struct SamplingEdit {
  int64_t row;
  int64_t kind;           // 0 keep only, 1 add, 2 penalise, 3 ban `ids`; 4 keep those of `mask`
  int64_t count;          // of ids
  const int64_t* ids;     // distinct where they are penalised
  const float* adds;      // kind 1
  const int32_t* counts;  // kind 2: how often each id stands in the output
  const uint32_t* mask;   // kind 4: bit t % 32 of word t / 32 keeps token t
  float repetition, frequency, presence;
};

// Edits rows of logits in place, then draws an id from each, as `SamplingInputs` says.
// is_bad: 1 where a row holds NaN, +inf or nothing that may be drawn, 2 where an edit names an id
// that there is not; the id is 0 then. Shared memory: `octavo_sampling_bytes`.
struct Sample {
  float* logits;
  const int64_t* rows;
  const float* temperature;
  const int32_t* top_k;
  const double* top_p;
  const double* min_p;
  const double* uniforms;
  const SamplingEdit* edits;
  const int64_t* num_edits;
  int64_t* ids;
  uint8_t* is_bad;
  int64_t stride, width;
};
void sample(const Sample&, Worker&);

// Log-probabilities of one token, and of the likeliest, of each of `entries` rows of logits:
// logits of entry i are row rows[i]. Its num_top[i] <= width best go to top_ids[starts[i]] and on.
// Shared memory: `octavo_sampling_bytes`.
struct Logprobs {
  const float* logits;
  const int64_t* entries;
  const int64_t* rows;
  const int64_t* token_ids;
  const int64_t* num_top;
  const int64_t* starts;
  float* chosen;
  int64_t* ranks;
  int64_t* top_ids;
  float* top_logprobs;
  int64_t stride, width;
};
void logprobs(const Logprobs&, Worker&);

}  // namespace octavo
