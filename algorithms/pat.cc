// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// PAT: one binomial tree a block, all at once, shifted by a rank each; what a
// rank passes on to one peer in a round is one message. n = 8, the tree of rank
// 0's block in all_gather (reduce_scatter is the same backwards):
//
//     distance 4    0 ---------------> 4                 1 block a message
//     distance 2    0 -----> 2         4 -----> 6        2 blocks
//     distance 1    0 -> 1   2 -> 3    4 -> 5   6 -> 7   4 blocks
//
// Far partners exchange little, near ones much. For any n a tree leaves out
// what's beyond n - 1. The blocks of a message are strided.
//
// Rounds, and what a rank sends, in blocks (B) of n ranks:
//   all_gather      ceil(log2 n), (n - 1) B
//   reduce_scatter  ceil(log2 n), (n - 1) B; scratch: n / 2 slots, the blocks
//                   of the largest message
//   all_reduce      both, 2 (n - 1) / n B; for columns of nodes, as a row it
//                   would be halving_doubling's equal
#include "algorithms/pat.h"

#include <algorithm>
#include <span>
#include <vector>

#include "algorithms/step_builder.h"

namespace trnccl::pat {
namespace {

using Offsets = std::vector<int64_t>;

// A round of reduce_scatter. At offset o from a block's owner the rank holds a
// fold of that block; offsets that are odd multiples of `distance` send theirs
// to the even multiple below.
struct Round {
  int distance = 1;
  Offsets even;  // in the order of their slots
  // The greatest even multiple, even[0], may have no sender: n cuts it off.
  int64_t alone = 0;  // 1 then
  int64_t sender_slot = 0;
  int64_t receiver_slot = 0;

  std::span<const int64_t> receivers() const {
    return std::span(even).subspan(alone);
  }
};

// Lays the values of the rounds, near partners first, into slots. The odd
// multiples of the first round have none: they're sent from the input.
void AssignSlots(std::vector<Round>& rounds) {
  int64_t even_slot = 0;
  for (Round& round : rounds) {
    const auto odd = static_cast<int64_t>(round.receivers().size());
    if (round.distance > 1) {
      round.sender_slot = even_slot + (round.alone > 0 ? odd + 1 : 0);
      even_slot += round.alone > 0 ? 0 : odd;
    }
    round.receiver_slot = even_slot + round.alone;
  }
}

// The rounds of reduce_scatter, near partners first. The order of the slots is
// such that in each round the senders lie side by side and the receivers do in
// the same order, odd multiples before even ones. Where one is alone, and so
// the greatest, it's the other way round: the greatest offset is always first,
// where leaving it out makes no gap.
std::vector<Round> Rounds(int ranks) {
  std::vector<Round> rounds;
  Offsets order = {0};
  for (int distance = 1 << CeilLog2(ranks); (distance /= 2) > 0;) {
    Offsets odd;
    for (const int64_t offset : order) {
      if (offset + distance < ranks) odd.push_back(offset + distance);
    }
    const bool alone = odd.size() < order.size();
    rounds.push_back(
        {.distance = distance, .even = order, .alone = alone ? 1 : 0});
    order.insert(alone ? order.end() : order.begin(), odd.begin(), odd.end());
  }
  std::reverse(rounds.begin(), rounds.end());
  AssignSlots(rounds);
  return rounds;
}

// The blocks that have this rank at the offsets, moved on by `further`.
absl::InlinedVector<Span, 1> BlocksAt(const Shape& shape,
                                      std::span<const int64_t> offsets,
                                      int further) {
  absl::InlinedVector<Span, 1> spans = Spans(offsets);
  for (Span& span : spans) {
    span.first = RankAt(shape, shape.rank - further - span.first);
    span.stride = -span.stride;
  }
  return spans;
}

// From the rank's own block in the output.
void AddGathering(Lane& lane, const Shape& shape) {
  for (int distance = 1 << CeilLog2(shape.ranks); (distance /= 2) > 0;) {
    const int ahead = RankAt(shape, shape.rank + distance);
    const int behind = RankAt(shape, shape.rank - distance);
    const int64_t blocks =
        (shape.ranks - distance + 2 * distance - 1) / (2 * distance);
    const int64_t stride = -2 * int64_t{distance};
    Add(lane, {.first = shape.rank, .chunks = blocks, .stride = stride})
        .Take(Operand::Of(Buffer::kOutput))
        .Send(ahead);
    Add(lane, {.first = behind, .chunks = blocks, .stride = stride})
        .Take(Operand::From(behind))
        .Store(Buffer::kOutput);
  }
}

}  // namespace

Program ReduceScatter(const Shape& shape) {
  Program program = WithLanes(1);
  Lane& lane = program.lanes[0];
  if (shape.ranks > 2) program.scratch_slots = (shape.ranks + 1) / 2;
  if (shape.ranks == 1) AddOwnInput(lane, shape);
  for (const Round& round : Rounds(shape.ranks)) {
    const bool raw = round.distance == 1;
    const Held before = Held::Of(shape, raw ? 1 : 2);
    const auto mine = [raw](int64_t slot) {
      return raw ? Operand::Of(Buffer::kInput) : Operand::Slot(slot);
    };
    AddSpans(lane, BlocksAt(shape, round.receivers(), round.distance))
        .Take(mine(round.sender_slot), before)
        .Holds(before)
        .Send(RankAt(shape, shape.rank - round.distance));
    StepBuilder fold = AddSpans(lane, BlocksAt(shape, round.receivers(), 0));
    fold.Take(mine(round.receiver_slot), before)
        .Take(Operand::From(RankAt(shape, shape.rank + round.distance)),
              before);
    if (2 * round.distance >= shape.ranks) {
      fold.Holds(Held::All(shape)).Store(Buffer::kOutput);
    } else {
      fold.Holds(Held::Of(shape, 2)).StoreSlot(round.receiver_slot);
    }
    if (raw && round.alone > 0) {
      Add(lane, {.first = RankAt(shape, shape.rank - round.even[0])})
          .TakeInput()
          .Holds(Held::Of(shape, 2))
          .StoreSlot(0);
    }
  }
  return program;
}

Program AllGather(const Shape& shape) {
  Program program = WithLanes(1);
  Add(program.lanes[0], {.first = shape.rank})
      .TakeInput()
      .Store(Buffer::kOutput);
  AddGathering(program.lanes[0], shape);
  return program;
}

Program AllReduce(const Shape& shape) {
  Program program = ReduceScatter(shape);
  program.chunks_per_block = shape.ranks;
  AddGathering(program.lanes[0], shape);
  return program;
}

}  // namespace trnccl::pat
