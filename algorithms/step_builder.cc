// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/step_builder.h"

#include <bit>
#include <utility>

namespace trnccl {

int RankAt(const Shape& shape, int64_t position) {
  const int64_t remainder = position % shape.ranks;
  return static_cast<int>(remainder < 0 ? remainder + shape.ranks : remainder);
}

int FromRoot(const Shape& shape) {
  return RankAt(shape, int64_t{shape.rank} - shape.root);
}

int CeilLog2(int ranks) {
  return std::bit_width(static_cast<unsigned>(ranks - 1));
}

int FloorLog2(int ranks) {
  return std::bit_width(static_cast<unsigned>(ranks)) - 1;
}

absl::InlinedVector<Span, 1> Spans(std::span<const int64_t> chunks) {
  absl::InlinedVector<Span, 1> spans;
  for (const int64_t chunk : chunks) {
    if (!spans.empty()) {
      Span& last = spans.back();
      if (last.chunks == 1) last.stride = chunk - last.first;
      if (last.first + last.chunks * last.stride == chunk) {
        ++last.chunks;
        continue;
      }
    }
    spans.push_back({.first = chunk});
  }
  return spans;
}

StepBuilder& StepBuilder::Take(const Operand& operand) {
  step_->operands.push_back(operand);
  return *this;
}

StepBuilder& StepBuilder::Take(const Operand& operand, const Held& held) {
  Take(operand);
  step_->operands.back().partial = held.Partial();
  return *this;
}

StepBuilder& StepBuilder::Store(const Place& place) {
  step_->stores = true;
  step_->store = place;
  return *this;
}

StepBuilder& StepBuilder::Send(int peer) {
  step_->send_to.push_back(peer);
  return *this;
}

StepBuilder& StepBuilder::SendToOthers(const Shape& shape) {
  for (int distance = 1; distance < shape.ranks; ++distance) {
    Send(RankAt(shape, int64_t{shape.rank} + distance));
  }
  return *this;
}

StepBuilder& StepBuilder::Holds(const Held& held) {
  step_->partial = held.Partial();
  step_->completes = held.Complete();
  return *this;
}

StepBuilder Add(Lane& lane, const Span& span) { return AddSpans(lane, {span}); }

StepBuilder AddSpans(Lane& lane, absl::InlinedVector<Span, 1> spans) {
  Step& step = lane.steps.emplace_back();
  step.spans = std::move(spans);
  return StepBuilder(step);
}

void AddOwnInput(Lane& lane, const Shape& shape) {
  Add(lane, {.first = 0})
      .TakeInput()
      .Holds(Held::All(shape))
      .Store(Buffer::kOutput);
}

Program WithLanes(int64_t lanes) {
  Program program;
  program.lanes.resize(static_cast<size_t>(lanes));
  return program;
}

}  // namespace trnccl
