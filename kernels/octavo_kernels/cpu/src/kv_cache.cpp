// Writes keys and values into the pages of the cache.
//
// Knows how pages are laid out and how numbers are rounded. Does not know who owns a slot.
#include "kv_cache.h"

#include <algorithm>

#include "operations.h"

namespace octavo {

namespace {

// Where one token of a page goes.
struct Place {
  uint8_t* page;
  int64_t offset;  // of the token in its block
  PageShape shape;

  uint8_t* value() const { return page + shape.values() + offset * shape.token_bytes(); }
  // row `index` of the scales
  template <class T>
  T* scale(int64_t index) const {
    return reinterpret_cast<T*>(page + shape.scales()) + index * shape.tokens + offset;
  }
  template <class T>
  void scatter_keys(const T* codes, int64_t count) const {
    T* out = reinterpret_cast<T*>(page) + offset;
    for (int64_t i = 0; i < count; i++) out[i * shape.tokens] = codes[i];
  }
};

// Largest number, and NaN where any number is NaN or infinite, so that it shows in every product.
struct Extent {
  float least, most, poison;

  static Extent of(const float* x, int64_t count) {
    Floats least = load(x), most = least, poison(0.0f);
    for (int64_t i = 0; i < count; i += LANES) {
      const Floats value = load(x + i);
      least = min(least, value);
      most = max(most, value);
      poison = fma(value, Floats(0.0f), poison);
    }
    return {-largest(Floats(0.0f) - least), largest(most), sum(poison)};
  }
};

void put_floats(const Place& place, const float* k, const float* v) {
  place.scatter_keys(k, place.shape.dims);
  std::memcpy(place.value(), v, size_t(place.shape.dims) * sizeof(float));
}

// Numbers beyond the largest half become it: an infinity would make later tokens NaN.
Floats bounded_half(Floats x) {
  const Floats most(65504.0f);
  return max(Floats(0.0f) - most, min(most, x));
}

void put_halves(const Place& place, const float* k, const float* v, uint16_t* halves) {
  uint16_t* values = reinterpret_cast<uint16_t*>(place.value());
  for (int64_t i = 0; i < place.shape.dims; i += LANES) {
    store_half(halves + i, bounded_half(load(k + i)));
    store_half(values + i, bounded_half(load(v + i)));
  }
  place.scatter_keys(halves, place.shape.dims);
}

// Rounds to signed bytes; returns their scale.
float round_to_bytes(const float* x, int64_t count, int8_t* codes) {
  const Extent extent = Extent::of(x, count);
  const float most = std::max(extent.most, -extent.least);
  // below this the inverse is no float
  const float inverse = most > 1e-35f ? float(MAX_CODE_INT8) / most : 0.0f;
  for (int64_t i = 0; i < count; i += LANES)
    store_bytes(codes + i, to_ints(load(x + i) * Floats(inverse)));
  return most / float(MAX_CODE_INT8) + extent.poison;
}

void put_bytes(const Place& place, const float* k, const float* v, int8_t* codes) {
  *place.scale<float>(0) = round_to_bytes(k, place.shape.dims, codes);
  place.scatter_keys(codes, place.shape.dims);
  *place.scale<float>(1) =
      round_to_bytes(v, place.shape.dims, reinterpret_cast<int8_t*>(place.value()));
}

// Rounds numbers to 0 .. 15, one code a byte. Those from head_dim on are changed and mean nothing.
void round_to_nibbles(float* x, int64_t head_dim, int64_t dims, uint16_t* scale, uint16_t* least,
                      int8_t* codes) {
  // what pads the head must not widen the range
  for (int64_t i = head_dim; i < dims; i++) x[i] = x[0];
  const Extent extent = Extent::of(x, dims);
  constexpr float most_half = 65504.0f;
  const float bounded_least = std::max(extent.least, -most_half);
  *least = float_to_half(std::min(bounded_least, most_half) + extent.poison);
  const float lowest = half_to_float(*least);
  *scale = float_to_half((extent.most - lowest) / float(MAX_CODE_INT4));
  const float step = half_to_float(*scale);
  const float inverse = step > 0.0f ? 1.0f / step : 0.0f;
  for (int64_t i = 0; i < dims; i += LANES) {
    const Floats code = round((load(x + i) - Floats(lowest)) * Floats(inverse));
    // NaN becomes 0: it shows in the scale
    const Floats bounded = min(max(code, Floats(0.0f)), Floats(float(MAX_CODE_INT4)));
    store_bytes(codes + i, to_ints(bounded));
  }
}

void put_nibbles(const Place& place, float* k, float* v, int64_t head_dim, int8_t* codes) {
  const int64_t dims = place.shape.dims;
  round_to_nibbles(k, head_dim, dims, place.scale<uint16_t>(0), place.scale<uint16_t>(1), codes);
  for (int64_t i = 0; i < dims / 2; i++)
    codes[i] = int8_t(codes[2 * i] | codes[2 * i + 1] << 4);
  place.scatter_keys(codes, dims / 2);
  round_to_nibbles(v, head_dim, dims, place.scale<uint16_t>(2), place.scale<uint16_t>(3), codes);
  uint8_t* out = place.value();
  for (int64_t i = 0; i < dims; i += 2 * LANES, out += LANES)
    for (int64_t j = 0; j < LANES; j++)
      out[j] = uint8_t(codes[i + j] | codes[i + LANES + j] << 4);
}

void put(const Place& place, float* k, float* v, int64_t head_dim, void* codes) {
  switch (place.shape.format) {
    case CacheFormat::FLOAT32: return put_floats(place, k, v);
    case CacheFormat::FLOAT16: return put_halves(place, k, v, static_cast<uint16_t*>(codes));
    case CacheFormat::INT8: return put_bytes(place, k, v, static_cast<int8_t*>(codes));
    case CacheFormat::INT4: 
      return put_nibbles(place, k, v, head_dim, static_cast<int8_t*>(codes));
  }
}

void copy_padded(float* out, const float* x, int64_t count, int64_t padded) {
  for (int64_t i = 0; i < padded; i += LANES) store(out + i, load_first(x + i, count - i));
}

// Fetches the cache lines that a token is written to: they are far apart, and each is waited for.
void fetch(const Place& place) {
  const int64_t keys = place.shape.values(), token_bytes = place.shape.token_bytes();
  for (int64_t i = 0; i < keys; i += 64) __builtin_prefetch(place.page + i, 1);
  for (int64_t i = 0; i < token_bytes; i += 64) __builtin_prefetch(place.value() + i, 1);
}

}  // namespace

void write_kv(const WriteKv& a, Worker& worker) {
  const PageShape shape = PageShape::of(a.head_dim, a.block_size, a.format);
  const int64_t page_bytes = shape.bytes(), tokens = *a.tokens;
  // neighbours share cache lines of keys, so that a piece holds several, unless there are few
  const int64_t per_piece =
      std::max<int64_t>(1, std::min<int64_t>(16, tokens / (4 * worker.num_threads)));
  worker.share((tokens + per_piece - 1) / per_piece, [&](int64_t piece) {
    float* k = worker.scratch().get<float>(3 * shape.dims);
    float* v = k + shape.dims;
    const int64_t last = std::min(tokens, (piece + 1) * per_piece);
    const auto place_of = [&](int64_t token, int64_t head) {
      const int64_t block = a.slots[token] / a.block_size;
      return Place{a.pages + (block * a.kv_heads + head) * page_bytes,
                   a.slots[token] % a.block_size, shape};
    };
    for (int64_t token = piece * per_piece; token < last; token++) {
      for (int64_t head = 0; head < a.kv_heads; head++) {
        const Place place = place_of(token, head);
        if (token + 1 < last) {
          const Place next = place_of(token + 1, head);
          if (next.page != place.page) fetch(next);
        }
        copy_padded(k, a.k + token * a.k_stride + head * a.k_head_stride, a.head_dim, shape.dims);
        copy_padded(v, a.v + token * a.v_stride + head * a.v_head_stride, a.head_dim, shape.dims);
        put(place, k, v, a.head_dim, v + shape.dims);
      }
    }
  });
}

}  // namespace octavo

using namespace octavo;

// Bytes of one block of one key head.
extern "C" int64_t octavo_page_bytes(int64_t head_dim, int64_t block_size, int64_t format) {
  return PageShape::of(head_dim, block_size, format).bytes();
}
