// One recorded operation, and how it is looked up.
//
// An operation reads its number of live rows from a count that it is given by reference, so that
// one list of calls serves steps of any size. Knows the shape of a call. Does not know any
// operation.
#pragma once

#include <cstdint>
#include <new>

#include "rows.h"
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

// How a call is made for some of its rows alone.
struct RowWise {
  // the count of rows that it reads
  const int64_t* (*count)(const void* arguments);
  // arguments for the rows from `first` on, as many as `count` says
  void (*move)(void* to, const void* arguments, int64_t first, const int64_t* count);
  int64_t (*shared_bytes)(const void* arguments, int64_t rows);
  bool (*follows)(const void* arguments);
};

struct NamedOperation {
  const char* name;
  Operation run;
  int64_t arguments_bytes;
  RowWise row_wise;  // all null where rows need one another
};

extern const NamedOperation OPERATIONS[];

// Runs an operation whose arguments are a struct of type Arguments.
template <class Arguments, void (*run)(const Arguments&, Worker&)>
void call(const void* arguments, Worker& worker) {
  run(*static_cast<const Arguments*>(arguments), worker);
}

// An entry of the table of operations.
template <class Arguments, void (*run)(const Arguments&, Worker&)>
constexpr NamedOperation named(const char* name) {
  return {name, call<Arguments, run>, int64_t(sizeof(Arguments)), {}};
}

constexpr int64_t MAX_ARGUMENTS_BYTES = 192;

// As `named`, of an operation whose rows do not need one another.
template <class Arguments, void (*run)(const Arguments&, Worker&)>
constexpr NamedOperation row_wise(const char* name) {
  static_assert(sizeof(Arguments) <= MAX_ARGUMENTS_BYTES);
  NamedOperation operation = named<Arguments, run>(name);
  operation.row_wise.count = [](const void* arguments) {
    Arguments copy = *static_cast<const Arguments*>(arguments);
    return count_of(copy);
  };
  operation.row_wise.move = [](void* to, const void* arguments, int64_t first,
                               const int64_t* count) {
    Arguments& moved = *new (to) Arguments(*static_cast<const Arguments*>(arguments));
    skip_rows(moved, first);
    count_of(moved) = count;
  };
  operation.row_wise.shared_bytes = [](const void* arguments, int64_t rows) {
    return octavo::shared_bytes(*static_cast<const Arguments*>(arguments), rows);
  };
  operation.row_wise.follows = [](const void* arguments) {
    return octavo::follows(*static_cast<const Arguments*>(arguments));
  };
  return operation;
}

}  // namespace octavo
