// The small operations between linear layers: norms, rotary, activations, copies of rows.
//
// A number that comes out depends on its own row alone: never on how many rows there are, how they
// are cut in pieces, or who computes them. Knows rows of floats. Does not know layers.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "operations.h"
#include "sizes.h"
#include "vectors.h"

namespace octavo {

namespace {

// The cost of work is counted in floats that are read, added or multiplied, and written: about an
// eighth of a nanosecond. Half a microsecond of it is worth handing to another thread; less is not.
constexpr int64_t PIECE_COST = 4096;
// As many pieces for each thread let another one finish early what a thread is late with.
constexpr int64_t PIECES_PER_THREAD = 8;
// What an exponential with a division costs.
constexpr int64_t EXPONENTIAL_COST = 4;
// Rows wider than this are cut by columns too, where columns do not need one another.
constexpr int64_t MOST_COLUMNS = 1024;

// Calls work(unit) for units in [0, units), each of the same cost.
template <class Work>
void share_units(Worker& worker, int64_t units, int64_t unit_cost, Work&& work) {
  const int64_t most = PIECES_PER_THREAD * worker.num_threads;
  const int64_t pieces = std::clamp<int64_t>(units * unit_cost / PIECE_COST, 1, most);
  const int64_t per_piece = std::max<int64_t>(1, divide_up(units, pieces));
  worker.share(divide_up(units, per_piece), [&](int64_t piece) {
    const int64_t last = std::min(units, (piece + 1) * per_piece);
    for (int64_t unit = piece * per_piece; unit < last; unit++) work(unit);
  });
}

// Calls work(row, first, last) for stretches of columns that make up rows of `width`; each column
// of one has the same cost.
template <class Work>
void share_columns(Worker& worker, int64_t rows, int64_t width, int64_t cost, Work&& work) {
  const int64_t cuts = std::max<int64_t>(1, divide_up(width, MOST_COLUMNS));
  // whole vectors, so that only a row's end has less than one
  const int64_t columns = divide_up(divide_up(width, cuts), LANES) * LANES;
  share_units(worker, rows * cuts, columns * cost, [&](int64_t unit) {
    const int64_t first = unit % cuts * columns;
    work(unit / cuts, first, std::min(width, first + columns));
  });
}

// Calls full(i) for whole vectors from i = first on, and part(i, n) for the n < LANES left over.
template <class Full, class Part>
void each_vector(int64_t first, int64_t last, Full&& full, Part&& part) {
  int64_t i = first;
  for (; i + LANES <= last; i += LANES) full(i);
  if (i < last) part(i, last - i);
}

// The sum of the squares of what `next(i, n)` gives for the n floats from i on.
template <class Next>
float sum_squares(int64_t width, Next&& next) {
  // four sums, so that an addition need not wait for the one before
  Floats sums[4] = {Floats(0.0f), Floats(0.0f), Floats(0.0f), Floats(0.0f)};
  int64_t i = 0;
  for (; i + 4 * LANES <= width; i += 4 * LANES)
    for (int k = 0; k < 4; k++) {
      const Floats x = next(i + k * LANES, LANES);
      sums[k] = fma(x, x, sums[k]);
    }
  for (int k = 0; i < width; i += LANES, k++) {
    const Floats x = next(i, std::min<int64_t>(LANES, width - i));
    sums[k] = fma(x, x, sums[k]);
  }
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// out = x * scale * weight, with the scale that gives x a mean square of 1.
void normalise(float* out, const float* x, const float* weight, int64_t width, float squares,
               float eps) {
  const Floats scale(1.0f / std::sqrt(squares / float(width) + eps));
  each_vector(
      0, width, [&](int64_t i) { store(out + i, load(x + i) * scale * load(weight + i)); },
      [&](int64_t i, int64_t n) {
        store_first(out + i, load_first(x + i, n) * scale * load_first(weight + i, n), n);
      });
}

Floats load_at_most(const float* p, int64_t n) {
  return n >= LANES ? load(p) : load_first(p, n);
}

// x * sigmoid(z), where x is of z's order of size
Floats gate_by(Floats x, Floats z) {
  // where exp(-z) is too large for a float, what comes out is too small for one
  return zero_below(x / (Floats(1.0f) + exp(Floats(0.0f) - z)), z, -87.33654f);
}

Floats silu(Floats x) { return gate_by(x, x); }

// 0.5 x (1 + tanh(z)) = x sigmoid(2 z), which loses nothing where tanh(z) is near -1
Floats gelu(Floats x) {
  const Floats cubic = fma(x * x, Floats(0.044715f), Floats(1.0f));
  const Floats twice_z = x * Floats(1.5957691216057308f) * cubic;
  return gate_by(x, twice_z);
}

template <Floats (*activation)(Floats)>
void activate(const GatedActivation& a, Worker& worker) {
  const auto work = [&](int64_t row, int64_t first, int64_t last) {
    const float* gate = a.gate_up + row * 2 * a.width;
    const float* up = gate + a.width;
    float* out = a.out + row * a.width;
    each_vector(
        first, last, [&](int64_t i) { store(out + i, activation(load(gate + i)) * load(up + i)); },
        [&](int64_t i, int64_t n) {
          store_first(out + i, activation(load_first(gate + i, n)) * load_first(up + i, n), n);
        });
  };
  share_columns(worker, *a.rows, a.width, EXPONENTIAL_COST, work);
}

template <class Change>
void change(const Elementwise& a, Worker& worker, int64_t cost, Change&& changed) {
  share_columns(worker, *a.rows, a.width, cost, [&](int64_t row, int64_t first, int64_t last) {
    float* x = a.x + row * a.width;
    each_vector(
        first, last, [&](int64_t i) { store(x + i, changed(load(x + i))); },
        [&](int64_t i, int64_t n) { store_first(x + i, changed(load_first(x + i, n)), n); });
  });
}

}  // namespace

void rms_norm(const RmsNorm& a, Worker& worker) {
  share_units(worker, *a.rows * a.heads, a.width, [&](int64_t unit) {
    const int64_t row = unit / a.heads, head = unit % a.heads;
    const float* x = a.x + row * a.x_stride + head * a.width;
    float* out = a.out + row * a.out_stride + head * a.width;
    const float squares =
        sum_squares(a.width, [&](int64_t i, int64_t n) { return load_at_most(x + i, n); });
    normalise(out, x, a.weight, a.width, squares, a.eps);
  });
}

void add_rms_norm(const AddRmsNorm& a, Worker& worker) {
  share_units(worker, *a.rows, 2 * a.width, [&](int64_t row) {
    float* residual = a.residual + row * a.width;
    const float* delta = a.delta + row * a.width;
    const float squares = sum_squares(a.width, [&](int64_t i, int64_t n) {
      const Floats x = load_at_most(residual + i, n) + load_at_most(delta + i, n);
      if (n >= LANES)
        store(residual + i, x);
      else
        store_first(residual + i, x, n);
      return x;
    });
    normalise(a.out + row * a.width, residual, a.weight, a.width, squares, a.eps);
  });
}

void rotary(const Rotary& a, Worker& worker) {
  share_units(worker, *a.rows, 2 * a.heads * a.half, [&](int64_t row) {
    const float* cosines = a.table + a.positions[row] * 2 * a.half;
    const float* sines = cosines + a.half;
    for (int64_t head = 0; head < a.heads; head++) {
      float* first = a.x + row * a.row_stride + head * a.head_stride;
      float* second = first + a.half;
      for (int64_t i = 0; i < a.half; i += LANES) {
        const int64_t n = std::min<int64_t>(LANES, a.half - i);
        const Floats cosine = load_first(cosines + i, n), sine = load_first(sines + i, n);
        const Floats x = load_first(first + i, n), y = load_first(second + i, n);
        store_first(first + i, x * cosine - y * sine, n);
        store_first(second + i, y * cosine + x * sine, n);
      }
    }
  });
}

void gated_activation(const GatedActivation& a, Worker& worker) {
  if (a.kind == 0)
    activate<silu>(a, worker);
  else
    activate<gelu>(a, worker);
}

void elementwise(const Elementwise& a, Worker& worker) {
  const Floats number(a.number);
  if (a.kind == 0)
    change(a, worker, 1, [&](Floats x) { return x * number; });
  else
    change(a, worker, EXPONENTIAL_COST, [&](Floats x) { return number * tanh(x / number); });
}

void gather_rows(const GatherRows& a, Worker& worker) {
  share_columns(worker, *a.rows, a.width, 1, [&](int64_t row, int64_t first, int64_t last) {
    std::memcpy(a.out + row * a.width + first, a.x + a.index[row] * a.width + first,
                size_t(last - first) * sizeof(float));
  });
}

}  // namespace octavo
