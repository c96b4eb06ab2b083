// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The words in which builders write schedules: where a rank stands, and a step
// put together a clause at a time. Nothing that one algorithm alone needs.
//
// Thread rule: plain values and pure functions. The StepBuilder that Add gives
// is good until the lane's next step.
//
//   // Fold the left neighbour's message with the input and pass it on.
//   Add(lane, {.first = chunk})
//       .Take(Operand::From(RankAt(shape, shape.rank - 1)))
//       .TakeInput()
//       .Holds(Held::Of(shape, 2))
//       .Send(RankAt(shape, shape.rank + 1));
#pragma once

#include <cstdint>
#include <span>

#include "absl/container/inlined_vector.h"
#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl {

// The rank at `position` of the circle of all ranks; any integer.
int RankAt(const Shape& shape, int64_t position);

// The rank's distance from the root on the circle: 0 at the root.
int FromRoot(const Shape& shape);

// The least k with 2^k >= ranks: the rounds in which all can reach all.
int CeilLog2(int ranks);
// The greatest k with 2^k <= ranks.
int FloorLog2(int ranks);

// What a reduced value has in it. Of a step whose chunks hold different numbers
// of contributions, some but never all: any number between.
struct Held {
  static Held Of(const Shape& shape, int contributions) {
    return {.contributions = contributions, .ranks = shape.ranks};
  }
  static Held All(const Shape& shape) { return Of(shape, shape.ranks); }

  int contributions = 1;
  int ranks = 1;

  bool Partial() const { return contributions > 1 && contributions < ranks; }
  bool Complete() const { return contributions == ranks; }
};

// The chunks in the order given, as few spans as greedy joining yields.
absl::InlinedVector<Span, 1> Spans(std::span<const int64_t> chunks);

class StepBuilder {
 public:
  explicit StepBuilder(Step& step) : step_(&step) {}

  StepBuilder& Take(const Operand& operand);
  // Marks the operand as partial by what it holds.
  StepBuilder& Take(const Operand& operand, const Held& held);
  StepBuilder& TakeInput() { return Take(Operand::Of(Buffer::kInput)); }
  StepBuilder& Store(Buffer buffer) { return Store(Place{.buffer = buffer}); }
  StepBuilder& StoreSlot(int64_t slot) {
    return Store(Place{.buffer = Buffer::kScratch, .slot = slot});
  }
  StepBuilder& Store(const Place& place);
  StepBuilder& Send(int peer);
  // To every other rank, the next one on the circle first.
  StepBuilder& SendToOthers(const Shape& shape);
  // Marks the result as partial or completed, by what it now holds.
  StepBuilder& Holds(const Held& held);

 private:
  Step* step_;
};

StepBuilder Add(Lane& lane, const Span& span);
StepBuilder AddSpans(Lane& lane, absl::InlinedVector<Span, 1> spans);

// What a reduction of one rank is: its input, complete.
void AddOwnInput(Lane& lane, const Shape& shape);

// A program with this many empty lanes.
Program WithLanes(int64_t lanes);

}  // namespace trnccl
