// Runs code on a team of threads of the OpenMP runtime that torch brings.
//
// Called as g++ calls it for `#pragma omp parallel`: clang would ask for a runtime of its own, and
// there must be only one in a process. All OpenMP runtimes in use have these entries. Knows the
// runtime. Does not know what is run.
#pragma once

#include <cstdint>
#include <type_traits>

extern "C" void GOMP_parallel(void (*function)(void*), void* data, unsigned num_threads,
                              unsigned flags);
extern "C" int omp_get_num_threads();

namespace octavo {

// Calls work() on each thread of a team of at most num_threads; omp_get_num_threads() tells how
// many it got.
template <class Work>
void on_team(int64_t num_threads, Work&& work) {
  auto function = [](void* data) { (*static_cast<std::remove_reference_t<Work>*>(data))(); };
  GOMP_parallel(function, &work, unsigned(num_threads), 0);
}

}  // namespace octavo
