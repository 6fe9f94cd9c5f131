// One recorded operation, and how it is looked up.
//
// An operation reads its number of live rows from a count that it is given by reference, so that
// one list of calls serves steps of any size. Knows the shape of a call. Does not know any
// operation.
#pragma once

#include <cstdint>

#include "team.h"

namespace octavo {

using Operation = void (*)(const void* arguments, Worker& worker);

// As `octavo_kernels.cpu.calls` lays it out.
struct Call {
  int64_t operation;  // its place in `operations()`
  const void* arguments;
};

// Phases that no operation exceeds.
constexpr int64_t MAX_PHASES = 4;

struct NamedOperation {
  const char* name;
  Operation run;
  int64_t arguments_bytes;
};

// Runs an operation whose arguments are a struct of type Arguments.
template <class Arguments, void (*run)(const Arguments&, Worker&)>
void call(const void* arguments, Worker& worker) {
  run(*static_cast<const Arguments*>(arguments), worker);
}

// An entry of the table of operations.
template <class Arguments, void (*run)(const Arguments&, Worker&)>
constexpr NamedOperation named(const char* name) {
  return {name, call<Arguments, run>, int64_t(sizeof(Arguments))};
}

}  // namespace octavo
