// How many units a size takes. Knows whole numbers alone.
#pragma once

#include <cstdint>

namespace octavo {

// Of sizes that are not negative, in units of at least 1.
constexpr int64_t divide_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
constexpr int64_t round_up(int64_t n, int64_t unit) { return divide_up(n, unit) * unit; }

}  // namespace octavo
