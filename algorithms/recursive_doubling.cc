// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Recursive doubling: partners swap all they have; in each round a group of
// consecutive ranks joins its neighbour group.
//
//     round 0      0 <-> 1    2 <-> 3    4 <-> 5    6 <-> 7
//     round 1      0 <------> 2          4 <------> 6      (1 <> 3, 5 <> 7)
//     round 2      0 <-----------------> 4                 (1 <> 5, ...)
//
// With p = 2^k <= n the first n - p pairs of ranks (0 and 1, 2 and 3, ...) fold
// into their even rank before and hear the result from it after.
//
// The lower group is folded first on both sides: all have the same fold tree.
//
// Rounds log2 p, up to two more if n isn't p. A rank sends log2 p blocks, one
// more if an odd rank depends on it.
#include "algorithms/recursive_doubling.h"

#include "algorithms/step_builder.h"

namespace trnccl::recursive_doubling {
namespace {

constexpr Span kBlock = {.first = 0};

// The ranks that swap, numbered 0..p-1 in rank order.
class Swappers {
 public:
  explicit Swappers(const Shape& shape)
      : ranks_(shape.ranks), pairs_(shape.ranks - Count(shape.ranks)) {}

  bool IsPaired(int rank) const { return rank < 2 * pairs_; }
  int NumberOf(int rank) const {
    return IsPaired(rank) ? rank / 2 : rank - pairs_;
  }
  int RankOf(int number) const {
    return number < pairs_ ? 2 * number : number + pairs_;
  }
  int PartnerOf(int round, int rank) const {
    return RankOf(NumberOf(rank) ^ (1 << round));
  }
  // What the swapper holds before the round: its group's ranks.
  Held HeldBefore(int round, int rank) const {
    const int group = NumberOf(rank) >> round;
    return {
        .contributions = RankOf((group + 1) << round) - RankOf(group << round),
        .ranks = ranks_};
  }

 private:
  static int Count(int ranks) { return 1 << FloorLog2(ranks); }

  int ranks_;
  int pairs_;
};

}  // namespace

Program AllReduce(const Shape& shape) {
  Program program = WithLanes(1);
  Lane& lane = program.lanes[0];
  const Swappers swappers(shape);
  const bool paired = swappers.IsPaired(shape.rank);
  if (paired && shape.rank % 2 == 1) {
    Add(lane, kBlock).TakeInput().Send(shape.rank - 1);
    Add(lane, kBlock)
        .Take(Operand::From(shape.rank - 1))
        .Store(Buffer::kOutput);
    return program;
  }
  StepBuilder step = Add(lane, kBlock).TakeInput();
  step.Holds(swappers.HeldBefore(0, shape.rank));
  Buffer mine = Buffer::kInput;
  if (paired) step.Take(Operand::From(shape.rank + 1));
  if (paired || shape.ranks == 1) step.Store(mine = Buffer::kOutput);
  for (int round = 0; round < FloorLog2(shape.ranks); ++round) {
    const int partner = swappers.PartnerOf(round, shape.rank);
    step.Send(partner);
    step = Add(lane, kBlock);
    const auto take_mine = [&] {
      step.Take(Operand::Of(mine), swappers.HeldBefore(round, shape.rank));
    };
    if (shape.rank < partner) take_mine();
    step.Take(Operand::From(partner), swappers.HeldBefore(round, partner));
    if (shape.rank > partner) take_mine();
    step.Holds(swappers.HeldBefore(round + 1, shape.rank));
    step.Store(mine = Buffer::kOutput);
  }
  if (paired) step.Send(shape.rank + 1);
  return program;
}

}  // namespace trnccl::recursive_doubling
