// Low-rank changes of linear layers: out += scale * b (a x), for the tokens of each adapter.
//
// In two parts, so that a linear layer can make them along with its own work: first the ranks of
// every token, then columns of the result, to which the adapters' changes are added in the order
// of the segments. A token's result depends on its own adapters alone. Knows factors and which
// tokens they change. Does not know what an adapter is, nor who shares the work.
#pragma once

#include "operations.h"

namespace octavo {

class LowRankChange {
 public:
  // Keeps a token's ranks in `ranks`: max_rank floats for each token of the batch.
  LowRankChange(const Adapt& arguments, float* ranks);

  // Ranks come in so many pieces, which do not need one another.
  int64_t num_pieces() const { return num_pieces_; }
  void compute_ranks(int64_t piece) const;

  // Fetches the factors that columns [first, last) of the result want, if adapters are few.
  void prefetch(int64_t first, int64_t last) const;
  // Adds to columns [first, last), whole panels of them, once all ranks are known.
  void add(int64_t first, int64_t last) const;

 private:
  const LowRank* change_of(const AdapterSegment& segment) const;
  template <class Work>
  void each_segment(Work&& work) const;
  template <class Work>
  void each_block(const AdapterSegment& segment, int64_t first, int64_t last, int64_t most,
                  float* ranks, Work&& work) const;

  const Adapt& arguments_;
  float* const ranks_;
  const int64_t groups_;  // of ranks
  int64_t num_pieces_ = 0;
};

// As `linear`, along with a change of its outputs, the first of which is output `first_output` of
// what the change is of. The change's ranks are known already, or are computed now.
void adapted_linear(const Linear&, Worker&, const LowRankChange&, int64_t first_output,
                    bool has_ranks);

}  // namespace octavo
