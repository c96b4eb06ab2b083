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
//   reduce_scatter  ceil(log2 n), (n - 1) B; scratch: n / 2 slots, no more than
//                   the largest message
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
  bool first_is_alone = false;

  std::span<const Offsets::value_type> receivers() const {
    return std::span(even).subspan(first_is_alone ? 1 : 0);
  }
};

// The rounds of reduce_scatter, near partners first. Slots are ordered so that
// in every round the senders lie side by side, and the receivers do in the same
// order: the even multiples in one piece, the odd ones in another. The greatest
// offset always comes first, where leaving it out makes no gap.
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
        {.distance = distance, .even = order, .first_is_alone = alone});
    order.insert(alone ? order.end() : order.begin(), odd.begin(), odd.end());
  }
  std::reverse(rounds.begin(), rounds.end());
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

}  // namespace

Program ReduceScatter(const Shape& shape) {
  Program program = WithLanes(1);
  Lane& lane = program.lanes[0];
  const Held all{.contributions = shape.ranks, .ranks = shape.ranks};
  const Held some{.contributions = 2, .ranks = shape.ranks};
  if (shape.ranks == 1) {
    Add(lane, {.first = 0}).TakeInput().Holds(all).Store(Buffer::kOutput);
  }
  if (shape.ranks > 2) program.scratch_slots = (shape.ranks + 1) / 2;
  int64_t slot = 0;  // the first of the round's values
  for (const Round& round : Rounds(shape.ranks)) {
    const bool raw = round.distance == 1;
    const Held before{.contributions = raw ? 1 : 2, .ranks = shape.ranks};
    const auto receivers = round.receivers();
    const int64_t alone = round.first_is_alone ? 1 : 0;
    const auto pairs = static_cast<int64_t>(receivers.size());
    const int64_t senders_slot = slot + (alone > 0 ? alone + pairs : 0);
    const int64_t even_slot = slot + (alone > 0 ? 0 : pairs);
    const auto mine = [&](int64_t at) {
      return raw ? Operand::Of(Buffer::kInput) : Operand::Slot(at);
    };
    AddSpans(lane, BlocksAt(shape, receivers, round.distance))
        .Take(mine(senders_slot), before)
        .Holds(before)
        .Send(RankAt(shape, shape.rank - round.distance));
    StepBuilder fold = AddSpans(lane, BlocksAt(shape, receivers, 0));
    fold.Take(mine(even_slot + alone), before)
        .Take(Operand::From(RankAt(shape, shape.rank + round.distance)),
              before);
    slot = raw ? 0 : even_slot;
    if (2 * round.distance >= shape.ranks) {
      fold.Holds(all).Store(Buffer::kOutput);
    } else {
      fold.Holds(some).StoreSlot(slot + alone);
    }
    if (raw && alone > 0) {
      AddSpans(lane, BlocksAt(shape, std::span(round.even).first(1), 0))
          .TakeInput()
          .Holds(some)
          .StoreSlot(0);
    }
  }
  return program;
}

Program AllGather(const Shape& shape) {
  Program program = WithLanes(1);
  Lane& lane = program.lanes[0];
  Add(lane, {.first = shape.rank}).TakeInput().Store(Buffer::kOutput);
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
  return program;
}

}  // namespace trnccl::pat
