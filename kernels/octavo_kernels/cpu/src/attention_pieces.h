// Where the keys and values of a piece lie: the pages behind a table of blocks.
//
// Knows tables, pages and what is fetched ahead. Does not know queries or scores.
#pragma once

#include <algorithm>
#include <cstring>

#include "attention_work.h"
#include "kv_cache.h"
#include "sizes.h"

namespace octavo {

// Vectors of a piece.
constexpr int64_t PIECE_VECTORS = PIECE / LANES;
// Vectors that are fetched from memory before those that are worked on.
constexpr int64_t AHEAD = 64 / LANES;

struct Range {
  int64_t first, last;

  bool is_empty() const { return last <= first; }
  Range within(Range other) const {
    return {std::max(first, other.first), std::min(last, other.last)};
  }
  // the vectors that hold these tokens
  Range vectors() const { return {first / LANES, divide_up(last, LANES)}; }
};

// One piece, laid out by `PageReader`. Vectors and tokens count from the piece's beginning.
struct Piece {
  const uint8_t* keys[PIECE_VECTORS];
  const uint8_t* values[PIECE_VECTORS];
  int64_t row_bytes;    // from one row of keys to the next
  int64_t value_bytes;  // of a token
  // What is read one after the other: each vector's share of a page's keys, in the vector's place,
  // then the values, then what comes next. What is AHEAD places on is fetched meanwhile.
  const uint8_t* stream[2 * PIECE_VECTORS + AHEAD];
  const uint8_t** keys_ahead;  // by vector
  const uint8_t** values_ahead;
  // what scales codes, by token
  alignas(64) float key_scales[PIECE];
  float value_scales[PIECE], value_offsets[PIECE];

  // row i of a page's scales
  float* scales(int64_t i) { return i == 0 ? key_scales : i == 1 ? value_scales : value_offsets; }
};

// The vectors that are worked on next: their shares of keys, as far as they are known.
struct Ahead {
  const uint8_t* shares[AHEAD];
  int64_t count = 0;
};

// Reads the cache of one sequence and key head.
class PageReader {
 public:
  PageReader(const Attention& a, const PageShape& page, int64_t sequence, int64_t head)
      : page_(page),
        table_(a.block_tables + sequence * a.table_stride),
        first_page_(a.pages + head * page.bytes()),
        block_bytes_(a.kv_heads * page.bytes()) {}

  // Whether a vector lies in one block.
  bool is_aligned() const { return page_.tokens % LANES == 0; }

  // Finds the tokens `seen` of the piece that begins at position `start`; `next` is what will be
  // read after it. `memory`: for PIECE keys and values, where they are put together if blocks are
  // no whole vectors.
  void read(Piece& piece, int64_t start, Range seen, const Ahead& next, uint8_t* memory) const {
    piece.row_bytes = page_.row_bytes();
    piece.value_bytes = page_.value_bytes();
    if (is_aligned())
      locate(piece, start, seen.vectors());
    else
      gather(piece, start, seen, memory);
    plan_ahead(piece, seen.vectors(), next);
  }

  // Finds the shares of the vectors from a position on, up to `end`.
  Ahead ahead(int64_t position, int64_t end) const {
    Ahead ahead;
    if (!is_aligned()) return ahead;
    each_vector(position / LANES * LANES, end, AHEAD, [&](const uint8_t* page, int64_t offset) {
      ahead.shares[ahead.count++] = page + offset * page_.key_bytes();
    });
    return ahead;
  }

 private:
  const uint8_t* page_of_block(int64_t block) const {
    return first_page_ + table_[block] * block_bytes_;
  }
  // Calls work(page, offset) for the vectors from `position` on: at most `most`, and before `end`.
  template <class Work>
  void each_vector(int64_t position, int64_t end, int64_t most, Work&& work) const {
    end = std::min(end, position + most * LANES);
    int64_t block = position / page_.tokens, offset = position % page_.tokens;
    for (; position < end; block++, offset = 0) {
      const uint8_t* page = page_of_block(block);
      for (; offset < page_.tokens && position < end; offset += LANES, position += LANES)
        work(page, offset);
    }
  }

  void locate(Piece& piece, int64_t start, Range vectors) const {
    int64_t v = vectors.first;
    const int64_t cell = page_.cell_bytes(), keys = page_.key_bytes(), values = page_.values();
    const auto find = [&](const uint8_t* page, int64_t offset) {
      piece.keys[v] = page + offset * cell;
      piece.values[v] = page + values + offset * page_.value_bytes();
      piece.stream[v] = page + offset * keys;
      for (int64_t i = 0; i < page_.num_scales(); i++)
        store(piece.scales(i) + v * LANES, load(scale(page, i, offset)));
      v++;
    };
    each_vector(start + v * LANES, start + vectors.last * LANES, PIECE_VECTORS, find);
  }

  void plan_ahead(Piece& piece, Range vectors, const Ahead& next) const {
    const int64_t count = vectors.last - vectors.first;
    const uint8_t** values = piece.stream + vectors.last;
    std::copy(piece.values + vectors.first, piece.values + vectors.last, values);
    // what is known to be there already costs nothing to fetch
    for (int64_t i = 0; i < AHEAD; i++)
      values[count + i] = i < next.count ? next.shares[i] : values[count - 1];
    piece.keys_ahead = piece.stream + AHEAD;
    piece.values_ahead = piece.stream + count + AHEAD;
  }

  // Copies tokens as they are to where a block of LANES tokens would have them.
  void gather(Piece& piece, int64_t start, Range seen, uint8_t* memory) const {
    const PageShape vector{page_.format, page_.dims, LANES};
    uint8_t* values = memory + PIECE * page_.key_bytes();
    piece.row_bytes = vector.row_bytes();
    const Range vectors = seen.vectors();
    for (int64_t v = vectors.first; v < vectors.last; v++) {
      piece.keys[v] = piece.stream[v] = memory + v * vector.values();
      piece.values[v] = values + v * LANES * page_.value_bytes();
    }
    for (int64_t token = seen.first; token < seen.last; token++) {
      const int64_t position = start + token, offset = position % page_.tokens;
      const uint8_t* page = page_of_block(position / page_.tokens);
      copy_keys(memory + token / LANES * vector.values(), token % LANES, page, offset);
      copy_values(values, token, page + page_.values(), offset);
      for (int64_t i = 0; i < page_.num_scales(); i++)
        piece.scales(i)[token] = *scale(page, i, offset);
    }
  }

  void copy_keys(uint8_t* out, int64_t token, const uint8_t* keys, int64_t offset) const {
    const int64_t cell = page_.cell_bytes();
    for (int64_t i = 0; i < page_.key_bytes() / cell; i++)
      std::memcpy(out + (i * LANES + token) * cell, keys + (i * page_.tokens + offset) * cell,
                  size_t(cell));
  }

  void copy_values(uint8_t* out, int64_t token, const uint8_t* values, int64_t offset) const {
    const int64_t size = page_.value_bytes();
    if (!page_.is_coded()) {
      std::memcpy(out + token * size, values + offset * size, size_t(size));
      return;
    }
    // two tokens take their bytes in turns
    out += token / 2 * 2 * size + token % 2;
    values += offset / 2 * 2 * size + offset % 2;
    for (int64_t i = 0; i < size; i++) out[2 * i] = values[2 * i];
  }

  // Row i of a page's scales, from a token on.
  const float* scale(const uint8_t* page, int64_t i, int64_t offset) const {
    return reinterpret_cast<const float*>(page + page_.scales()) + i * page_.tokens + offset;
  }

  const PageShape& page_;
  const int32_t* table_;
  const uint8_t* first_page_;
  int64_t block_bytes_;
};

}  // namespace octavo
