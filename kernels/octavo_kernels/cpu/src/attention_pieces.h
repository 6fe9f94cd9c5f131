// Where the keys and values of a piece lie: the pages behind a table of blocks.
//
// Knows tables, pages and what is fetched ahead. Does not know queries or scores.
#pragma once

#include <algorithm>
#include <cstring>

#include "attention_work.h"
#include "kv_cache.h"

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
  Range vectors() const { return {first / LANES, (last + LANES - 1) / LANES}; }
};

// One piece, laid out by `PageReader`. Vectors and tokens count from the piece's beginning.
struct Piece {
  const uint8_t* keys[PIECE_VECTORS];
  const uint8_t* values[PIECE_VECTORS];
  int64_t pair_bytes, token_bytes;
  // What is read one after the other: each vector's share of a page's keys, in the vector's place,
  // then the values, then what comes next. What is AHEAD places on is fetched meanwhile.
  const uint8_t* stream[2 * PIECE_VECTORS + AHEAD];
  const uint8_t** keys_ahead;  // by vector
  const uint8_t** values_ahead;
  // what scales the codes, by token: key scale, key least, value scale, value least
  alignas(64) float scales[4][PIECE];
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
    piece.token_bytes = page_.token_bytes();
    piece.pair_bytes = page_.pair_bytes();
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
      ahead.shares[ahead.count++] = page + offset * page_.token_bytes();
    });
    return ahead;
  }

 private:
  const uint8_t* page_of_block(int64_t block) const {
    return first_page_ + table_[block] * block_bytes_;
  }
  // from one token's number of a dimension to the next token's
  int64_t code_bytes() const { return std::max<int64_t>(1, page_.bits() / 8); }

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
    const int64_t code = code_bytes(), token_bytes = page_.token_bytes(), values = page_.values();
    const auto find = [&](const uint8_t* page, int64_t offset) {
      piece.keys[v] = page + offset * code;
      piece.values[v] = page + values + offset * token_bytes;
      piece.stream[v] = page + offset * token_bytes;
      load_scales(piece, v * LANES, page, offset);
      v++;
    };
    each_vector(start + v * LANES, start + vectors.last * LANES, PIECE_VECTORS, find);
  }

  // Reads what scales the LANES tokens from `token` on.
  void load_scales(Piece& piece, int64_t token, const uint8_t* page, int64_t offset) const {
    switch (page_.format) {
      case CacheFormat::INT8:
        for (int64_t i = 0; i < 2; i++)
          store(piece.scales[2 * i] + token, load(scale<float>(page, i, offset)));
        break;
      case CacheFormat::INT4:
        for (int64_t i = 0; i < 4; i++)
          store(piece.scales[i] + token, load_half(scale<uint16_t>(page, i, offset)));
        break;
      default: break;
    }
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
  void gather(Piece& piece, int64_t start, Range seen, uint8_t* keys) const {
    const PageShape vector{page_.format, page_.dims, LANES};
    const int64_t token_bytes = page_.token_bytes(), code = code_bytes();
    const int64_t rows = token_bytes / code;
    uint8_t* values = keys + PIECE * token_bytes;
    piece.pair_bytes = vector.pair_bytes();
    const Range vectors = seen.vectors();
    for (int64_t v = vectors.first; v < vectors.last; v++) {
      piece.keys[v] = piece.stream[v] = keys + v * vector.values();
      piece.values[v] = values + v * vector.values();
    }
    for (int64_t token = seen.first; token < seen.last; token++) {
      const int64_t position = start + token, offset = position % page_.tokens;
      const uint8_t* page = page_of_block(position / page_.tokens);
      std::memcpy(values + token * token_bytes, page + page_.values() + offset * token_bytes,
                  size_t(token_bytes));
      uint8_t* out = keys + token / LANES * vector.values() + token % LANES * code;
      for (int64_t i = 0; i < rows; i++)
        std::memcpy(out + i * LANES * code, page + (i * page_.tokens + offset) * code,
                    size_t(code));
      gather_scales(piece, token, page, offset);
    }
  }

  void gather_scales(Piece& piece, int64_t token, const uint8_t* page, int64_t offset) const {
    switch (page_.format) {
      case CacheFormat::INT8:
        for (int64_t i = 0; i < 2; i++)
          piece.scales[2 * i][token] = *scale<float>(page, i, offset);
        break;
      case CacheFormat::INT4:
        for (int64_t i = 0; i < 4; i++)
          piece.scales[i][token] = half_to_float(*scale<uint16_t>(page, i, offset));
        break;
      default: break;
    }
  }

  // Row i of a page's scales, from a token on.
  template <class T>
  const T* scale(const uint8_t* page, int64_t i, int64_t offset) const {
    return reinterpret_cast<const T*>(page + page_.scales()) + i * page_.tokens + offset;
  }

  const PageShape& page_;
  const int32_t* table_;
  const uint8_t* first_page_;
  int64_t block_bytes_;
};

}  // namespace octavo
