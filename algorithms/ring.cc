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

// One rank's ring: chunks come from the left and leave to the right.
class Ring {
 public:
  Ring(Program& program, const Shape& shape)
      : program_(program), shape_(shape) {
    program.lanes.resize(std::min(shape.ranks, 2));
  }

  // Adds this rank's contribution to the chunk.
  StepBuilder Fold(const Visit& visit) {
    StepBuilder step = AddTo(visit);
    if (visit.hop > 0) {
      step.Take(Operand::From(Left()), Held::Of(shape_, visit.hop));
    }
    return step.TakeInput().Holds(Held::Of(shape_, visit.hop + 1));
  }

  // Stores the chunk as it is: where it sets out, or as it comes.
  StepBuilder Keep(const Visit& visit) {
    return AddTo(visit)
        .Take(visit.hop == 0 ? Operand::Of(Buffer::kInput)
                             : Operand::From(Left()))
        .Store(Buffer::kOutput);
  }

  int Right() const { return RankAt(shape_, shape_.rank + 1); }

 private:
  int Left() const { return RankAt(shape_, shape_.rank - 1); }
  StepBuilder AddTo(const Visit& visit) {
    return Add(program_.lanes[visit.chunk % program_.lanes.size()],
               {.first = visit.chunk});
  }

  Program& program_;
  const Shape& shape_;
};

}  // namespace

Program AllReduce(const Shape& shape) {
  Program program{.chunks_per_block = shape.ranks};
  Ring ring(program, shape);
  const int last = 2 * (shape.ranks - 1);
  for (int hop = 0; hop <= last; ++hop) {
    const Visit visit{.chunk = RankAt(shape, shape.rank - hop), .hop = hop};
    StepBuilder step = hop < shape.ranks ? ring.Fold(visit) : ring.Keep(visit);
    if (hop >= shape.ranks - 1) step.Store(Buffer::kOutput);
    if (hop < last) step.Send(ring.Right());
  }
  return program;
}

Program ReduceScatter(const Shape& shape) {
  Program program;
  Ring ring(program, shape);
  const int last = shape.ranks - 1;
  for (int hop = 0; hop <= last; ++hop) {
    StepBuilder step =
        ring.Fold({.chunk = RankAt(shape, shape.rank - 1 - hop), .hop = hop});
    if (hop < last) {
      step.Send(ring.Right());
    } else {
      step.Store(Buffer::kOutput);
    }
  }
  return program;
}

Program AllGather(const Shape& shape) {
  Program program;
  Ring ring(program, shape);
  const int last = shape.ranks - 1;
  for (int hop = 0; hop <= last; ++hop) {
    StepBuilder step =
        ring.Keep({.chunk = RankAt(shape, shape.rank - hop), .hop = hop});
    if (hop < last) step.Send(ring.Right());
  }
  return program;
}

}  // namespace trnccl::ring
