// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Dissemination: in round k each rank tells the one 2^k further that it and all
// whom it has heard of have come.
//
//     round 0      0 -> 1 -> 2 -> 3 -> 4 -> 0      after it a rank knows of 2
//     round 1      0 -> 2 -> 4 -> 1 -> 3 -> 0      of 4
//     round 2      0 -> 4 -> 3 -> 2 -> 1 -> 0      of all 5
//
// Rounds ceil(log2 n), as many messages a rank, all of them empty.
#include "algorithms/dissemination.h"

#include "algorithms/step_builder.h"

namespace trnccl::dissemination {

// Each round's send is joined to the step that hears the round before.
Program Barrier(const Shape& shape) {
  Program program = WithLanes(1);
  Lane& lane = program.lanes[0];
  const int rounds = CeilLog2(shape.ranks);
  for (int round = 0; round <= rounds; ++round) {
    StepBuilder step = AddSpans(lane, {});
    if (round > 0) {
      step.Take(
          Operand::From(RankAt(shape, shape.rank - (int64_t{1} << round) / 2)));
    }
    if (round < rounds) {
      step.Send(RankAt(shape, shape.rank + (int64_t{1} << round)));
    }
  }
  return program;
}

}  // namespace trnccl::dissemination
