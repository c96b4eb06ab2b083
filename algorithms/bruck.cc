// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Bruck: in round k a rank speaks to the rank 2^k away. n = 5:
//
//   all_gather        has          then sends to      and hears from
//     round 0         r            r - 1: r           r + 1: r+1
//     round 1         r..r+1       r - 2: r..r+1      r + 2: r+2..r+3
//     round 2         r..r+3       r - 4: r           r + 4: r+4
//
//   all_to_all: the block that has i ranks to go travels the set bits of i, the
//   lowest first; in round k a rank sends to r + 2^k all blocks whose i has bit
//   k. A block's home is scratch slot i - 1; blocks that aren't side by side at
//   home are packed behind the homes, sent as one message and unpacked.
//
// Rounds, and what a rank sends, in blocks (B) of n ranks:
//   all_gather  ceil(log2 n), (n - 1) B
//   all_to_all  ceil(log2 n), the set bits of 1..n-1 in all: n / 2 log2 n B
#include "algorithms/bruck.h"

#include <algorithm>
#include <vector>

#include "algorithms/step_builder.h"

namespace trnccl::bruck {
namespace {

// Blocks that have first..first+count-1 ranks to go, side by side at home.
struct Run {
  int first = 0;
  int count = 0;

  int64_t home() const { return first - 1; }
};

// One hop of one rank's all-to-all: the blocks that travel by `distance`.
class Hop {
 public:
  Hop(Lane& lane, const Shape& shape, int distance)
      : lane_(lane), shape_(shape), distance_(distance) {
    for (int first = distance; first < shape.ranks; first += 2 * distance) {
      runs_.push_back(
          {.first = first, .count = std::min(distance, shape.ranks - first)});
    }
  }

  void Build() {
    const bool packs = runs_.size() > 1;
    const int behind = RankAt(shape_, shape_.rank - distance_);
    if (packs) Pack();
    AddSpans(lane_, SpansAt(shape_.rank, runs_))
        .Take(Operand::Slot(packs ? PackedAt() : runs_[0].home()))
        .Send(RankAt(shape_, shape_.rank + distance_));
    StepBuilder hear = AddSpans(lane_, SpansAt(behind, runs_));
    hear.Take(Operand::From(behind));
    if (packs) {
      hear.StoreSlot(PackedAt());
      Unpack(behind);
    } else {
      hear.Store(Buffer::kOutput);  // the one run is the one that arrives
    }
  }

 private:
  using Runs = std::span<const Run>;

  int64_t PackedAt() const { return shape_.ranks - 1; }

  void Pack() {
    int64_t slot = PackedAt();
    for (const Run& run : runs_) {
      AddSpans(lane_, SpansAt(shape_.rank, Runs(&run, 1)))
          .Take(Operand::Slot(run.home()))
          .StoreSlot(slot);
      slot += run.count;
    }
  }

  // Blocks whose highest bit was this hop's have arrived.
  void Unpack(int sender) {
    int64_t slot = PackedAt();
    for (const Run& run : runs_) {
      StepBuilder step = AddSpans(lane_, SpansAt(sender, Runs(&run, 1)));
      step.Take(Operand::Slot(slot));
      if (run.first == distance_) {
        step.Store(Buffer::kOutput);
      } else {
        step.StoreSlot(run.home());
      }
      slot += run.count;
    }
  }

  // The blocks of the runs that `holder` has before the hop.
  absl::InlinedVector<Span, 1> SpansAt(int holder, Runs runs) const {
    std::vector<int64_t> chunks;
    for (const Run& run : runs) {
      for (int to_go = run.first; to_go < run.first + run.count; ++to_go) {
        const int travelled = to_go % distance_;
        const int source = RankAt(shape_, holder - travelled);
        const int destination = RankAt(shape_, source + to_go);
        chunks.push_back(int64_t{source} * shape_.ranks + destination);
      }
    }
    return Spans(chunks);
  }

  Lane& lane_;
  const Shape& shape_;
  const int distance_;
  std::vector<Run> runs_;
};

// The rank's blocks for the others, the one for the next rank first.
absl::InlinedVector<Span, 1> OthersFrom(const Shape& shape) {
  const int64_t first = int64_t{shape.rank} * shape.ranks;
  absl::InlinedVector<Span, 1> spans;
  const int after = shape.ranks - 1 - shape.rank;
  if (after > 0) spans.push_back({first + shape.rank + 1, after});
  if (shape.rank > 0) spans.push_back({first, shape.rank});
  return spans;
}

}  // namespace

Program AllGather(const Shape& shape) {
  Program program = WithLanes(1);
  Lane& lane = program.lanes[0];
  StepBuilder own = Add(lane, {.first = shape.rank});
  own.TakeInput().Store(Buffer::kOutput);
  if (shape.ranks > 1) own.Send(RankAt(shape, shape.rank - 1));
  for (int hop = 1; hop < shape.ranks; hop *= 2) {
    const int blocks = std::min(hop, shape.ranks - hop);
    const int behind = RankAt(shape, shape.rank - hop);
    const int ahead = RankAt(shape, shape.rank + hop);
    if (hop > 1) {
      Add(lane, {.first = shape.rank, .chunks = blocks})
          .Take(Operand::Of(Buffer::kOutput))
          .Send(behind);
    }
    Add(lane, {.first = ahead, .chunks = blocks})
        .Take(Operand::From(ahead))
        .Store(Buffer::kOutput);
  }
  return program;
}

Program AllToAll(const Shape& shape) {
  Program program = WithLanes(1);
  Lane& lane = program.lanes[0];
  const int64_t ranks = shape.ranks;
  Add(lane, {.first = shape.rank * ranks + shape.rank})
      .TakeInput()
      .Store(Buffer::kOutput);
  if (ranks == 1) return program;
  program.scratch_slots = ranks - 1 + ranks / 2;
  AddSpans(lane, OthersFrom(shape)).TakeInput().StoreSlot(0);
  for (int distance = 1; distance < shape.ranks; distance *= 2) {
    Hop(lane, shape, distance).Build();
  }
  return program;
}

}  // namespace trnccl::bruck
