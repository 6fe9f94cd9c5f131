// Shares the work of an operation between threads.
//
// Work is cut in pieces. Whichever thread is free takes the next, and a phase is over when all its
// pieces are done: not when all threads have come. A thread that the system took off its core
// between two pieces therefore holds nobody up; when it returns it finds nothing left to take, and
// catches up. Knows threads and pieces. Does not know what a piece computes.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One round of pieces. Each counter has a cache line of its own.
struct Phase {
  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) std::atomic<int64_t> done{0};
};

// The phases of one run, in order. Grows between runs only.
class Phases {
 public:
  void reset(int64_t count) {
    if (count > count_) {
      phases_.reset(new Phase[count]);
      count_ = count;
      return;
    }
    for (int64_t i = 0; i < count; i++) {
      phases_[i].next.store(0, std::memory_order_relaxed);
      phases_[i].done.store(0, std::memory_order_relaxed);
    }
  }
  Phase& operator[](int64_t index) { return phases_[index]; }

 private:
  std::unique_ptr<Phase[]> phases_;
  int64_t count_ = 0;
};

// Memory of one thread, 64-byte aligned; what it holds is lost with the next call of `get`.
class Scratch {
 public:
  ~Scratch() { std::free(memory_); }
  template <class T>
  T* get(int64_t count) {
    const size_t bytes = (size_t(count) * sizeof(T) + 127) / 64 * 64;
    if (bytes > bytes_) {
      std::free(memory_);
      memory_ = std::aligned_alloc(64, bytes);
      if (memory_ == nullptr) std::abort();
      bytes_ = bytes;
    }
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

// What one thread knows of the run it takes part in.
class Worker {
 public:
  Worker(Phases& phases, int num_threads, void* shared)
      : num_threads(num_threads), shared(shared), phases_(&phases) {}
  // One that does all by itself.
  explicit Worker(void* shared) : num_threads(1), shared(shared), phases_(nullptr) {}

  // Takes part in a phase: calls work(piece) for pieces in [0, pieces) that nobody has taken yet,
  // and returns when all of them are done, by whomever. All threads must come to the same phases
  // in the same order, and may only read what no later phase writes outside of `work`.
  template <class Work>
  void share(int64_t pieces, Work&& work) {
    if (phases_ == nullptr) {
      for (int64_t piece = 0; piece < pieces; piece++) work(piece);
      return;
    }
    Phase& phase = (*phases_)[index_++];
    for (;;) {
      const int64_t piece = phase.next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= pieces) break;
      work(piece);
      phase.done.fetch_add(1, std::memory_order_release);
    }
    wait(phase, pieces);
  }

  Scratch& scratch() {
    static thread_local Scratch scratch;
    return scratch;
  }
  // For what a worker that does all by itself has as `shared`.
  Scratch& own_shared() {
    static thread_local Scratch scratch;
    return scratch;
  }

  const int num_threads;
  // memory of the run, 64-byte aligned, that all threads share
  void* const shared;

 private:
  // Spins for about 50 microseconds, then gives its core away between looks.
  static void wait(const Phase& phase, int64_t pieces) {
    if (phase.done.load(std::memory_order_acquire) >= pieces) return;
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
      for (int i = 0; i < 64; i++) {
        if (phase.done.load(std::memory_order_acquire) >= pieces) return;
        relax();
      }
      if (std::chrono::steady_clock::now() - start > std::chrono::microseconds(50)) break;
    }
    while (phase.done.load(std::memory_order_acquire) < pieces) sched_yield();
  }

  Phases* const phases_;
  int64_t index_ = 0;
};

}  // namespace octavo
