// Calls functions of a library on memory that another process sends, and sends the memory back.
//
// So kernels for another machine are tested under an emulator. On stdin comes one request after
// the other, of 64-bit numbers and bytes:
//   the function's name: its length, then its bytes
//   buffers: their count, then of each its size, its address modulo 4096, and its bytes
//   pointers that lie in buffers: their count, then of each its place, and the place it leads to
//   arguments: their count, then of each its kind and what it is: 0 a number; 1 the place that a
//     pointer leads to; 2 the size of memory that holds nothing before and after
// A place is a buffer's number and an offset. On stdout goes what the function returns, then all
// buffers. Knows bytes. Does not know what a function does.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr int64_t PAGE = 4096;
constexpr int MAX_ARGUMENTS = 8;  // as many as fit into registers

using Function = int64_t (*)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                             int64_t);

void read(void* memory, int64_t size) {
  if (std::fread(memory, 1, size_t(size), stdin) != size_t(size)) std::exit(0);
}
int64_t number() {
  int64_t value;
  read(&value, sizeof(value));
  return value;
}

struct Free {
  void operator()(char* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char[], Free>;

// Memory whose address is `offset` modulo PAGE, and begins so far into what is allocated.
struct Buffer {
  int64_t size, offset;
  Memory pages;

  Buffer(int64_t size, int64_t offset)
      : size(size),
        offset(offset),
        pages(static_cast<char*>(
            std::aligned_alloc(PAGE, size_t((offset + size + PAGE) / PAGE * PAGE)))) {
    if (pages == nullptr) std::abort();
  }
  char* begin() const { return pages.get() + offset; }
};

// A pointer in a buffer, and what stood there.
struct Pointer {
  char* place;
  int64_t before;
};

class Request {
 public:
  void run(void* library) {
    std::string name(size_t(number()), '\0');
    read(name.data(), int64_t(name.size()));
    read_buffers();
    read_pointers();
    int64_t arguments[MAX_ARGUMENTS] = {};
    const int64_t count = number();
    if (count > MAX_ARGUMENTS) std::abort();
    for (int64_t i = 0; i < count; i++) arguments[i] = argument();
    const Function function = reinterpret_cast<Function>(dlsym(library, name.c_str()));
    if (function == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(1);
    }
    answer(function(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                    arguments[5], arguments[6], arguments[7]));
  }

 private:
  void read_buffers() {
    for (int64_t left = number(); left > 0; left--) {
      const int64_t size = number(), offset = number();
      buffers_.emplace_back(size, offset);
      read(buffers_.back().begin(), size);
    }
  }
  char* place() {
    const int64_t buffer = number(), offset = number();
    return buffers_.at(size_t(buffer)).begin() + offset;
  }
  void read_pointers() {
    for (int64_t left = number(); left > 0; left--) {
      char* at = place();
      const char* to = place();
      pointers_.push_back({at, 0});
      std::memcpy(&pointers_.back().before, at, sizeof(to));
      std::memcpy(at, &to, sizeof(to));
    }
  }
  int64_t argument() {
    switch (number()) {
      case 0: return number();
      case 1: return reinterpret_cast<int64_t>(place());
      default:
        empty_.emplace_back(number(), 0);
        return reinterpret_cast<int64_t>(empty_.back().begin());
    }
  }
  void answer(int64_t result) const {
    for (const Pointer& pointer : pointers_)
      std::memcpy(pointer.place, &pointer.before, sizeof(pointer.before));
    std::fwrite(&result, sizeof(result), 1, stdout);
    for (const Buffer& buffer : buffers_)
      std::fwrite(buffer.begin(), 1, size_t(buffer.size), stdout);
    std::fflush(stdout);
  }

  std::vector<Buffer> buffers_, empty_;
  std::vector<Pointer> pointers_;
};

}  // namespace

int main(int, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  for (;;) Request().run(library);
}
