// Linear layers that are made along with what adapters change of their results.
//
// A list has the linear layers of a matrix, one or several that fill columns of one result, and
// then the change of it. Made together, the change needs no waiting of its own, which is most of
// what a change of a few tokens costs, and finds the result in the caches.
// Knows calls. Does not know products.
#pragma once

#include "call.h"

namespace octavo {

// How many of the first of `count` calls are such linear layers with their change; 0: none.
int64_t find_adapted(const Call* calls, int64_t count);

// Makes so many calls, which `find_adapted` has found.
void make_adapted(const Call* calls, int64_t length, Worker& worker);

}  // namespace octavo
