// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Direct: one message from whom it comes to whom it goes.
//
//      0 <---> 1      Each line is a message each way; in all_reduce two_step
//      ^ \   / ^      one with a raw chunk, then one with a finished chunk.
//      |   x   |      The fold of a chunk is one step over n operands in rank
//      v /   \ v      order: a left fold that reads each operand once.
//      3 <---> 2
//
// Rounds, and what the busiest rank sends, in blocks (B) of n ranks:
//   all_reduce one_step  1, (n - 1) B   all_reduce two_step  2, 2 (n - 1) / n B
//   reduce_scatter       1, (n - 1) B   all_gather           1, (n - 1) B
//   reduce               1, B           broadcast            1, (n - 1) B
//   all_to_all           1, (n - 1) B
//   gather               1, B           scatter              1, (n - 1) B
#include "algorithms/direct.h"

#include "algorithms/step_builder.h"

namespace trnccl::direct {
namespace {

// Folds everyone's raw input of the chunk, in rank order, into the output.
void AddFoldOfAll(Lane& lane, const Shape& shape, int64_t chunk) {
  StepBuilder fold = Add(lane, {.first = chunk});
  for (int rank = 0; rank < shape.ranks; ++rank) {
    fold.Take(rank == shape.rank ? Operand::Of(Buffer::kInput)
                                 : Operand::From(rank));
  }
  fold.Holds(Held::All(shape)).Store(Buffer::kOutput);
}

// Sends to each other rank the input chunk of its number.
void AddSendToOwners(Lane& lane, const Shape& shape) {
  for (int distance = 1; distance < shape.ranks; ++distance) {
    const int owner = RankAt(shape, shape.rank + distance);
    Add(lane, {.first = owner}).TakeInput().Send(owner);
  }
}

// Stores from each other rank the chunk of its number, the one first that
// sends to this rank first.
void AddReceiveFromOwners(Lane& lane, const Shape& shape) {
  for (int distance = 1; distance < shape.ranks; ++distance) {
    const int owner = RankAt(shape, shape.rank - distance);
    Add(lane, {.first = owner})
        .Take(Operand::From(owner))
        .Store(Buffer::kOutput);
  }
}

}  // namespace

Program AllReduceOneStep(const Shape& shape) {
  Program program = WithLanes(1);
  Lane& lane = program.lanes[0];
  if (shape.ranks > 1) Add(lane, {.first = 0}).TakeInput().SendToOthers(shape);
  AddFoldOfAll(lane, shape, 0);
  return program;
}

// The fold can't send while it takes: each link still holds a raw chunk that
// only the peer's own fold takes.
Program AllReduceTwoStep(const Shape& shape) {
  Program program = WithLanes(1);
  program.chunks_per_block = shape.ranks;
  Lane& lane = program.lanes[0];
  AddSendToOwners(lane, shape);
  AddFoldOfAll(lane, shape, shape.rank);
  if (shape.ranks > 1) {
    Add(lane, {.first = shape.rank})
        .Take(Operand::Of(Buffer::kOutput))
        .SendToOthers(shape);
  }
  AddReceiveFromOwners(lane, shape);
  return program;
}

Program ReduceScatter(const Shape& shape) {
  Program program = WithLanes(1);
  AddSendToOwners(program.lanes[0], shape);
  AddFoldOfAll(program.lanes[0], shape, shape.rank);
  return program;
}

Program AllGather(const Shape& shape) {
  Program program = WithLanes(1);
  Add(program.lanes[0], {.first = shape.rank})
      .TakeInput()
      .Store(Buffer::kOutput)
      .SendToOthers(shape);
  AddReceiveFromOwners(program.lanes[0], shape);
  return program;
}

Program Reduce(const Shape& shape) {
  Program program = WithLanes(1);
  if (shape.rank == shape.root) {
    AddFoldOfAll(program.lanes[0], shape, 0);
  } else {
    Add(program.lanes[0], {.first = 0}).TakeInput().Send(shape.root);
  }
  return program;
}

Program Broadcast(const Shape& shape) {
  Program program = WithLanes(1);
  StepBuilder step = Add(program.lanes[0], {.first = 0});
  if (shape.rank == shape.root) {
    step.TakeInput().SendToOthers(shape);
  } else {
    step.Take(Operand::From(shape.root));
  }
  step.Store(Buffer::kOutput);
  return program;
}

// All sends come before all receives: in place, no block is overwritten before
// it has left.
Program AllToAll(const Shape& shape) {
  Program program = WithLanes(1);
  Lane& lane = program.lanes[0];
  const int64_t ranks = shape.ranks;
  for (int distance = 1; distance < shape.ranks; ++distance) {
    const int peer = RankAt(shape, shape.rank + distance);
    Add(lane, {.first = shape.rank * ranks + peer}).TakeInput().Send(peer);
  }
  Add(lane, {.first = shape.rank * ranks + shape.rank})
      .TakeInput()
      .Store(Buffer::kOutput);
  for (int distance = 1; distance < shape.ranks; ++distance) {
    const int peer = RankAt(shape, shape.rank - distance);
    Add(lane, {.first = peer * ranks + shape.rank})
        .Take(Operand::From(peer))
        .Store(Buffer::kOutput);
  }
  return program;
}

Program Gather(const Shape& shape) {
  Program program = WithLanes(1);
  StepBuilder own = Add(program.lanes[0], {.first = shape.rank}).TakeInput();
  if (shape.rank == shape.root) {
    own.Store(Buffer::kOutput);
    AddReceiveFromOwners(program.lanes[0], shape);
  } else {
    own.Send(shape.root);
  }
  return program;
}

Program Scatter(const Shape& shape) {
  Program program = WithLanes(1);
  Lane& lane = program.lanes[0];
  if (shape.rank == shape.root) AddSendToOwners(lane, shape);
  Add(lane, {.first = shape.rank})
      .Take(shape.rank == shape.root ? Operand::Of(Buffer::kInput)
                                     : Operand::From(shape.root))
      .Store(Buffer::kOutput);
  return program;
}

}  // namespace trnccl::direct
