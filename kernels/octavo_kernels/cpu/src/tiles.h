// AMX: tile registers, and the instructions that load, multiply and store them.
//
// A register holds up to 16 rows of 64 bytes, as many as this thread has shaped it to. A product
// takes four bytes of a row on the left at a time with four of a column on the right. Knows
// instructions. Does not know what tiles hold.
#pragma once

#if defined(__AMX_INT8__) && defined(__linux__) && defined(__x86_64__)
#define OCTAVO_HAS_TILES 1

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace octavo {

constexpr int NUM_TILES = 8;

// Whether the system lets this process use tiles: it has to be asked once.
inline bool has_tiles() {
  constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
  static const bool is_allowed = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
  return is_allowed;
}

struct TileShape {
  int64_t rows, row_bytes;
};

// Shapes all tile registers of this thread, and gives them back.
class ShapedTiles {
 public:
  // shape(i): the TileShape of register i
  template <class Shape>
  explicit ShapedTiles(Shape&& shape) {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shapes;
    for (int i = 0; i < NUM_TILES; i++) {
      const TileShape one = shape(i);
      shapes.rows[i] = uint8_t(one.rows);
      shapes.row_bytes[i] = uint16_t(one.row_bytes);
    }
    asm volatile("ldtilecfg %0" ::"m"(shapes));
  }
  ~ShapedTiles() { asm volatile("tilerelease"); }
  ShapedTiles(const ShapedTiles&) = delete;
  ShapedTiles& operator=(const ShapedTiles&) = delete;
};

// The intrinsics of some compilers do not say that they read memory.
template <int number>
inline void load_tile(const void* first, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(first), "r"(stride), "i"(number) : "memory");
}
template <int number>
inline void store_tile(void* first, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(first), "r"(stride), "i"(number) : "memory");
}
template <int number>
inline void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(number));
}

// sums += left * right, of bytes; the names say which side has signs, left first.
template <int sums, int left, int right>
inline void multiply_signed_signed() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(left), "i"(right));
}
template <int sums, int left, int right>
inline void multiply_signed_unsigned() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(left), "i"(right));
}
template <int sums, int left, int right>
inline void multiply_unsigned_signed() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(left), "i"(right));
}

}  // namespace octavo

#endif
