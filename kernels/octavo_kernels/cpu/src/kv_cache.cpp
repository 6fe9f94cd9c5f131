// Writes keys and values into the pages of the cache.
//
// Knows how pages are laid out. Does not know who owns a slot.
#include "kv_cache.h"

#include <algorithm>

#include "hadamard.h"
#include "operations.h"
#include "rounding.h"
#include "sizes.h"

namespace octavo {

namespace {

// Where one token of a page goes.
struct Place {
  uint8_t* page;
  int64_t offset;  // of the token in its block
  PageShape shape;

  uint8_t* keys() const { return page + offset * shape.cell_bytes(); }
  // of coded pages: the first of every two bytes, or the second
  uint8_t* values() const {
    uint8_t* values = page + shape.values();
    if (!shape.is_coded()) return values + offset * shape.value_bytes();
    return values + offset / 2 * 2 * shape.value_bytes() + offset % 2;
  }
  float& scale(int64_t index) const {
    return reinterpret_cast<float*>(page + shape.scales())[index * shape.tokens + offset];
  }
};

void put_floats(const Place& place, const float* k, const float* v) {
  uint8_t* out = place.keys();
  for (int64_t i = 0; i < place.shape.dims; i++, out += place.shape.row_bytes())
    std::memcpy(out, k + i, sizeof(float));
  std::memcpy(place.values(), v, size_t(place.shape.value_bytes()));
}

// Numbers beyond the largest half become it: an infinity would make later tokens NaN.
Floats bounded_half(Floats x) {
  const Floats most(65504.0f);
  return max(Floats(0.0f) - most, min(most, x));
}

void put_halves(const Place& place, const float* k, const float* v, uint16_t* halves) {
  uint16_t* values = reinterpret_cast<uint16_t*>(place.values());
  for (int64_t i = 0; i < place.shape.dims; i += LANES) {
    store_half(halves + i, bounded_half(load(k + i)));
    store_half(values + i, bounded_half(load(v + i)));
  }
  uint8_t* out = place.keys();
  for (int64_t i = 0; i < place.shape.dims; i++, out += place.shape.row_bytes())
    std::memcpy(out, halves + i, sizeof(uint16_t));
}

void put_key_codes(const Place& place, const float* k, int8_t* codes) {
  place.scale(0) = round_to_bytes(k, place.shape.dims, codes);
  uint8_t* out = place.keys();
  for (int64_t i = 0; i < place.shape.dims; i += 4, out += place.shape.row_bytes())
    for (int64_t j = 0; j < 4; j++) out[j] = uint8_t(codes[i + j] + WEIGHT_BIAS);
}

void put_value_codes(const Place& place, const float* v, int8_t* codes) {
  const int64_t dims = place.shape.dims;
  uint8_t* out = place.values();
  if (place.shape.format == CacheFormat::INT8) {
    place.scale(1) = round_to_bytes(v, dims, codes);
    for (int64_t i = 0; i < dims; i++) out[2 * i] = uint8_t(codes[i]);
    return;
  }
  const NibbleScale scale = round_to_nibbles(v, dims, codes);
  place.scale(1) = scale.scale;
  place.scale(2) = scale.offset;
  for (int64_t i = 0; i < dims; i += 2 * LANES, out += 2 * LANES)
    for (int64_t j = 0; j < LANES; j++)
      out[2 * j] = uint8_t(codes[i + j] | codes[i + LANES + j] << 4);
}

void copy_padded(float* out, const float* x, int64_t count, int64_t padded) {
  for (int64_t i = 0; i < padded; i += LANES) store(out + i, load_first(x + i, count - i));
}

// Fetches the cache lines that a token is written to: they are far apart, and each is waited for.
void fetch(const Place& place) {
  const int64_t keys = place.shape.values();
  const int64_t values = place.shape.value_bytes() * (place.shape.is_coded() ? 2 : 1);
  for (int64_t i = 0; i < keys; i += 64) __builtin_prefetch(place.page + i, 1);
  for (int64_t i = 0; i < values; i += 64) __builtin_prefetch(place.values() + i, 1);
}

// A thread's memory for one token: its keys, its values, and their codes.
struct Desk {
  float *k, *v;
  void* codes;

  void put(const WriteKv& a, const Place& place, int64_t token, int64_t head) const {
    const int64_t dims = place.shape.dims, block = rotated_dims(a.head_dim);
    copy_padded(k, a.k + token * a.k_stride + head * a.k_head_stride, a.head_dim, dims);
    copy_padded(v, a.v + token * a.v_stride + head * a.v_head_stride, a.head_dim, dims);
    switch (place.shape.format) {
      case CacheFormat::FLOAT32: return put_floats(place, k, v);
      case CacheFormat::FLOAT16: return put_halves(place, k, v, static_cast<uint16_t*>(codes));
      default: break;
    }
    rotate(k, dims, block);
    put_key_codes(place, k, static_cast<int8_t*>(codes));
    rotate(v, dims, block);
    // what fills up the last vector must not widen the range of the others
    std::fill(v + a.head_dim, v + dims, v[0]);
    put_value_codes(place, v, static_cast<int8_t*>(codes));
  }
};

}  // namespace

void write_kv(const WriteKv& a, Worker& worker) {
  const PageShape shape = PageShape::of(a.head_dim, a.block_size, a.format);
  const int64_t page_bytes = shape.bytes(), tokens = *a.tokens;
  // neighbours share cache lines of keys, so that a piece holds several, unless there are few
  const int64_t per_piece =
      std::max<int64_t>(1, std::min<int64_t>(16, tokens / (4 * worker.num_threads)));
  const auto place_of = [&](int64_t token, int64_t head) {
    const int64_t block = a.slots[token] / a.block_size;
    return Place{a.pages + (block * a.kv_heads + head) * page_bytes,
                 a.slots[token] % a.block_size, shape};
  };
  worker.share(divide_up(tokens, per_piece), [&](int64_t piece) {
    float* memory = worker.scratch().get<float>(3 * shape.dims);
    const Desk desk{memory, memory + shape.dims, memory + 2 * shape.dims};
    const int64_t last = std::min(tokens, (piece + 1) * per_piece);
    for (int64_t token = piece * per_piece; token < last; token++) {
      for (int64_t head = 0; head < a.kv_heads; head++) {
        const Place place = place_of(token, head);
        if (token + 1 < last) {
          const Place next = place_of(token + 1, head);
          if (next.page != place.page) fetch(next);
        }
        desk.put(a, place, token, head);
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
