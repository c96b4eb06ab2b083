// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Chain: the whole block passes from rank to rank.
//
//   broadcast     root --> root + 1 --> ... --> root + n - 1
//   reduce        root <-- root + 1 <-- ... <-- root + n - 1
//   rank order    0 ==> 1 ==> 2 ==> 3     partial values, folded left to right;
//                 0 <-- 1 <-- 2 <-- 3     then the result, back to all (or from
//                                         the last rank straight to the root)
//
// Rounds, and what a middle rank sends, in blocks (B) of n ranks:
//   broadcast, reduce      n - 1, B
//   rank-order reduce      n - 1 (n if the last rank isn't the root), B
//   rank-order all_reduce  2 (n - 1), 2 B
#include "algorithms/chain.h"

#include "algorithms/step_builder.h"

namespace trnccl::chain {
namespace {

constexpr Span kBlock = {.first = 0};

// Folds the input to what the ranks before this one have folded.
StepBuilder AddRankOrderFold(Lane& lane, const Shape& shape) {
  StepBuilder fold = Add(lane, kBlock);
  if (shape.rank > 0) {
    fold.Take(Operand::From(shape.rank - 1), Held::Of(shape, shape.rank));
  }
  return fold.TakeInput().Holds(Held::Of(shape, shape.rank + 1));
}

}  // namespace

Program Broadcast(const Shape& shape) {
  Program program = WithLanes(1);
  const int distance = FromRoot(shape);
  StepBuilder step = Add(program.lanes[0], kBlock);
  step.Take(distance == 0 ? Operand::Of(Buffer::kInput)
                          : Operand::From(RankAt(shape, shape.rank - 1)))
      .Store(Buffer::kOutput);
  if (distance < shape.ranks - 1) step.Send(RankAt(shape, shape.rank + 1));
  return program;
}

Program Reduce(const Shape& shape) {
  Program program = WithLanes(1);
  const int behind = shape.ranks - 1 - FromRoot(shape);
  StepBuilder step = Add(program.lanes[0], kBlock).TakeInput();
  if (behind > 0) {
    step.Take(Operand::From(RankAt(shape, shape.rank + 1)),
              Held::Of(shape, behind));
  }
  step.Holds(Held::Of(shape, behind + 1));
  if (shape.rank == shape.root) {
    step.Store(Buffer::kOutput);
  } else {
    step.Send(RankAt(shape, shape.rank - 1));
  }
  return program;
}

Program RankOrderReduce(const Shape& shape) {
  Program program = WithLanes(1);
  const int last = shape.ranks - 1;
  StepBuilder fold = AddRankOrderFold(program.lanes[0], shape);
  if (shape.rank < last) {
    fold.Send(shape.rank + 1);
  } else if (shape.rank != shape.root) {
    fold.Send(shape.root);
  }
  if (shape.rank != shape.root) return program;
  if (shape.rank == last) {
    fold.Store(Buffer::kOutput);
  } else {
    Add(program.lanes[0], kBlock)
        .Take(Operand::From(last))
        .Store(Buffer::kOutput);
  }
  return program;
}

Program RankOrderAllReduce(const Shape& shape) {
  Program program = WithLanes(1);
  StepBuilder step = AddRankOrderFold(program.lanes[0], shape);
  if (shape.rank < shape.ranks - 1) {
    step.Send(shape.rank + 1);
    step = Add(program.lanes[0], kBlock).Take(Operand::From(shape.rank + 1));
  }
  step.Store(Buffer::kOutput);
  if (shape.rank > 0) step.Send(shape.rank - 1);
  return program;
}

}  // namespace trnccl::chain
