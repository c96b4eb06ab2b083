// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Recursive halving on the circle: a rank holds the chunks at distances
// 0..held-1 from itself. In a round it keeps the nearer half and sends the
// further one, a single cyclic span, to the rank where that half is near.
// Doubling is the same backwards. n = 6, seen from rank r:
//
//     distance   0  1  2 | 3  4  5      keep 3, send 3 to rank r + 3
//                0  1 | 2               keep 2, send 1 to rank r + 2
//                0 | 1                  keep 1, send 1 to rank r + 1
//
// An odd middle chunk is kept, with nothing folded to it yet. Only the chunk's
// owner ever completes it: there's one fold tree.
//
// Rounds, and what a rank sends, in blocks (B) of n ranks:
//   halving reduce_scatter         ceil(log2 n), (n - 1) B
//   doubling all_gather            ceil(log2 n), (n - 1) B
//   halving_doubling all_reduce    2 ceil(log2 n), 2 (n - 1) / n B
#include "algorithms/halving.h"

#include <vector>

#include "algorithms/step_builder.h"

namespace trnccl::halving {
namespace {

// Of the chunks at distances 0..held-1, 0..keep-1 stay.
struct Round {
  int held = 0;
  int keep = 0;

  int sent() const { return held - keep; }
};

std::vector<Round> Rounds(int ranks) {
  std::vector<Round> rounds;
  for (int held = ranks; held > 1; held = rounds.back().keep) {
    rounds.push_back({.held = held, .keep = (held + 1) / 2});
  }
  return rounds;
}

// Where a rank keeps what it has folded so far: the chunk at distance d in slot
// d, or in its place in the output.
enum class Workspace { kSlots, kOutput };

Place PlaceAt(Workspace workspace, int distance) {
  if (workspace == Workspace::kOutput) return {.buffer = Buffer::kOutput};
  return {.buffer = Buffer::kScratch, .slot = distance};
}

// The halving part: ends with the rank's own chunk complete in the output.
void AddHalving(Lane& lane, const Shape& shape, Workspace workspace) {
  if (shape.ranks == 1) AddOwnInput(lane, shape);
  for (const Round& round : Rounds(shape.ranks)) {
    const bool raw = round.held == shape.ranks;
    const auto mine_at = [&](int distance) {
      return raw ? Operand::Of(Buffer::kInput)
                 : Operand{.place = PlaceAt(workspace, distance)};
    };
    const Held before = Held::Of(shape, raw ? 1 : 2);
    const int far = RankAt(shape, shape.rank + round.keep);
    Add(lane, {.first = far, .chunks = round.sent()})
        .Take(mine_at(round.keep), before)
        .Holds(before)
        .Send(far);
    StepBuilder fold =
        Add(lane, {.first = shape.rank, .chunks = round.sent()})
            .Take(Operand::From(RankAt(shape, shape.rank - round.keep)), before)
            .Take(mine_at(0), before);
    if (round.keep == 1) {
      fold.Holds(Held::All(shape)).Store(Buffer::kOutput);
    } else {
      fold.Holds(Held::Of(shape, 2)).Store(PlaceAt(workspace, 0));
    }
    if (raw && round.keep > round.sent()) {
      Add(lane, {.first = RankAt(shape, shape.rank + round.sent())})
          .TakeInput()
          .Holds(Held::Of(shape, 2))
          .Store(PlaceAt(workspace, round.sent()));
    }
  }
}

// The doubling part, from the rank's own chunk in the output.
void AddDoubling(Lane& lane, const Shape& shape) {
  const std::vector<Round> rounds = Rounds(shape.ranks);
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    const int far = RankAt(shape, shape.rank + round->keep);
    Add(lane, {.first = shape.rank, .chunks = round->sent()})
        .Take(Operand::Of(Buffer::kOutput))
        .Send(RankAt(shape, shape.rank - round->keep));
    Add(lane, {.first = far, .chunks = round->sent()})
        .Take(Operand::From(far))
        .Store(Buffer::kOutput);
  }
}

}  // namespace

Program AllReduce(const Shape& shape) {
  Program program = WithLanes(1);
  program.chunks_per_block = shape.ranks;
  AddHalving(program.lanes[0], shape, Workspace::kOutput);
  AddDoubling(program.lanes[0], shape);
  return program;
}

Program ReduceScatter(const Shape& shape) {
  Program program = WithLanes(1);
  if (shape.ranks > 2) program.scratch_slots = (shape.ranks + 1) / 2;
  AddHalving(program.lanes[0], shape, Workspace::kSlots);
  return program;
}

Program AllGather(const Shape& shape) {
  Program program = WithLanes(1);
  Add(program.lanes[0], {.first = shape.rank})
      .TakeInput()
      .Store(Buffer::kOutput);
  AddDoubling(program.lanes[0], shape);
  return program;
}

}  // namespace trnccl::halving
