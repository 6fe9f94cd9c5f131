// Runs of calls that are made block by block of rows instead of call by call.
//
// Many rows are too much for the caches between one call and the next: what a call writes is gone
// to memory before the next one reads it. Where the rows of some calls that follow one another do
// not need one another, a thread therefore takes a few rows through all of these calls, alone,
// which also spares threads the waiting for each other. What a row gives does not depend on the
// rows it is computed with, so that the bits are the same.
// Knows calls and rows. Does not know any operation.
#pragma once

#include "call.h"

namespace octavo {

// The first calls of a list that may be made block by block together; `length` is 0 or 1 if there
// are none.
struct RowRun {
  int64_t length = 0;
  int64_t rows = 0;
  int64_t block_rows = 0;
};

// The run that begins with the first of `count` calls.
RowRun find_run(const Call* calls, int64_t count, int64_t num_threads);

// Makes the calls of a run.
void make_run(const Call* calls, const RowRun& run, Worker& worker);

}  // namespace octavo
