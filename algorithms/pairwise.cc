// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Pairwise: a round-robin tournament. In round k the ranks whose sum is k
// (modulo n, n odd) meet and swap their blocks.
//
//     k = 0    k = 1    k = 2    k = 3    k = 4       n = 5: who stands alone
//     1 <> 4   0 <> 1   0 <> 2   0 <> 3   0 <> 4      has k = 2 * rank and
//     2 <> 3   2 <> 4   3 <> 4   1 <> 2   1 <> 3      rests; with n even it
//     0        3        1        4        2           meets the last rank.
//
// Rounds n - 1 (n even) or n (n odd: each rank rests once); a rank sends n - 1
// blocks.
//
// A pair swaps at the same time on both sides and sends before it receives, so
// that in place a block is overwritten only after it has left.
#include "algorithms/pairwise.h"

#include "algorithms/step_builder.h"

namespace trnccl::pairwise {
namespace {

// The ranks that stand in the circle; with n even the last one stands aside.
Shape CircleOf(const Shape& shape) {
  return {.ranks = shape.ranks - (shape.ranks % 2 == 0 ? 1 : 0)};
}

// Whom the rank meets in the round; itself if it rests.
int PartnerIn(const Shape& shape, int64_t round) {
  const Shape circle = CircleOf(shape);
  const int last = shape.ranks - 1;
  // The one of the circle whose double is the round.
  const int alone = RankAt(circle, round * ((circle.ranks + 1) / 2));
  if (circle.ranks == last && shape.rank == last) return alone;
  if (circle.ranks == last && shape.rank == alone) return last;
  return RankAt(circle, round - shape.rank);
}

}  // namespace

Program AllToAll(const Shape& shape) {
  Program program = WithLanes(1);
  Lane& lane = program.lanes[0];
  const int64_t ranks = shape.ranks;
  Add(lane, {.first = shape.rank * ranks + shape.rank})
      .TakeInput()
      .Store(Buffer::kOutput);
  for (int round = 0; round < CircleOf(shape).ranks; ++round) {
    const int partner = PartnerIn(shape, round);
    if (partner == shape.rank) continue;
    Add(lane, {.first = shape.rank * ranks + partner})
        .TakeInput()
        .Send(partner);
    Add(lane, {.first = partner * ranks + shape.rank})
        .Take(Operand::From(partner))
        .Store(Buffer::kOutput);
  }
  return program;
}

}  // namespace trnccl::pairwise
