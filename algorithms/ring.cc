// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Ring: in each round every rank passes one chunk to its right.
//
//     0 --> 1 --> 2 --> 3      Chunk s sets out at rank s, gathers a
//     ^                 |      contribution at each rank, is complete at rank
//     +-----------------+      s + n - 1, and goes round again to be stored.
//
// Rounds, and what a rank sends, in blocks (B) of n ranks:
//   all_reduce      2 (n - 1), 2 (n - 1) / n B
//   reduce_scatter  n - 1, (n - 1) B
//   all_gather      n - 1, (n - 1) B
//
// A step takes from the left and sends to the right at once, so a ring whose
// every link is full would stand still. Hence two lanes, the even and the odd
// chunks: a lane has fewer messages than links, and so always a free link.
#include "algorithms/ring.h"

#include <algorithm>

#include "algorithms/step_builder.h"

namespace trnccl::ring {
namespace {

struct Visit {
  int chunk = 0;
  int hop = 0;  // ranks that the chunk has seen before
};

// One rank's part of a ring: each chunk comes from the left and leaves to the
// right.
class RingBuilder {
 public:
  explicit RingBuilder(const Shape& shape)
      : shape_(shape), program_(WithLanes(std::min(shape.ranks, 2))) {}

  // Adds this rank's contribution to the chunk.
  StepBuilder Fold(const Visit& visit) {
    StepBuilder step = AddTo(visit);
    if (visit.hop > 0) step.Take(Operand::From(Left()), HeldAfter(visit.hop));
    return step.TakeInput().Holds(HeldAfter(visit.hop + 1));
  }

  // Stores the chunk as it is: where it sets out, or as it comes.
  StepBuilder Keep(const Visit& visit) {
    return AddTo(visit)
        .Take(visit.hop == 0 ? Operand::Of(Buffer::kInput)
                             : Operand::From(Left()))
        .Store(Buffer::kOutput);
  }

  int Right() const { return RankAt(shape_, shape_.rank + 1); }
  Program& program() { return program_; }

 private:
  int Left() const { return RankAt(shape_, shape_.rank - 1); }
  Held HeldAfter(int ranks) const {
    return {.contributions = ranks, .ranks = shape_.ranks};
  }
  StepBuilder AddTo(const Visit& visit) {
    return Add(program_.lanes[visit.chunk % program_.lanes.size()],
               {.first = visit.chunk});
  }

  const Shape& shape_;
  Program program_;
};

}  // namespace

Program AllReduce(const Shape& shape) {
  RingBuilder ring(shape);
  ring.program().chunks_per_block = shape.ranks;
  const int last = 2 * (shape.ranks - 1);
  for (int hop = 0; hop <= last; ++hop) {
    const Visit visit{.chunk = RankAt(shape, shape.rank - hop), .hop = hop};
    StepBuilder step = hop < shape.ranks ? ring.Fold(visit) : ring.Keep(visit);
    if (hop >= shape.ranks - 1) step.Store(Buffer::kOutput);
    if (hop < last) step.Send(ring.Right());
  }
  return ring.program();
}

Program ReduceScatter(const Shape& shape) {
  RingBuilder ring(shape);
  const int last = shape.ranks - 1;
  for (int hop = 0; hop <= last; ++hop) {
    StepBuilder step =
        ring.Fold({.chunk = RankAt(shape, shape.rank - 1 - hop), .hop = hop});
    if (hop < last) step.Send(ring.Right());
    if (hop == last) step.Store(Buffer::kOutput);
  }
  return ring.program();
}

Program AllGather(const Shape& shape) {
  RingBuilder ring(shape);
  const int last = shape.ranks - 1;
  for (int hop = 0; hop <= last; ++hop) {
    StepBuilder step =
        ring.Keep({.chunk = RankAt(shape, shape.rank - hop), .hop = hop});
    if (hop < last) step.Send(ring.Right());
  }
  return ring.program();
}

}  // namespace trnccl::ring
