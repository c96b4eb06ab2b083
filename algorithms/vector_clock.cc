// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/vector_clock.h"

#include <algorithm>

namespace trnccl {

VectorClocks::VectorClocks(int ranks, int lanes)
    : ranks_(ranks),
      lanes_(static_cast<size_t>(ranks) * static_cast<size_t>(lanes),
             kNothing) {}

VectorClocks::Snapshot VectorClocks::Take(LaneId lane) {
  const Snapshot snapshot = SnapshotOf(lane);
  if (snapshot != kNothing) ++clocks_[static_cast<size_t>(snapshot)].users;
  return snapshot;
}

void VectorClocks::Release(Snapshot snapshot) {
  if (snapshot == kNothing) return;
  if (--clocks_[static_cast<size_t>(snapshot)].users == 0) {
    free_.push_back(snapshot);
  }
}

void VectorClocks::Learn(LaneId lane, StepId sender, Snapshot snapshot) {
  Snapshot& mine = SnapshotOf(lane);
  if (mine == kNothing || clocks_[static_cast<size_t>(mine)].users > 1) {
    const Snapshot copy = NewClock();
    auto& steps = clocks_[static_cast<size_t>(copy)].steps;
    if (mine == kNothing) {
      steps.assign(static_cast<size_t>(ranks_), 0);
    } else {
      steps = clocks_[static_cast<size_t>(mine)].steps;
    }
    Release(mine);
    mine = copy;
  }
  auto& steps = clocks_[static_cast<size_t>(mine)].steps;
  if (snapshot != kNothing) {
    const auto& theirs = clocks_[static_cast<size_t>(snapshot)].steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      steps[i] = std::max(steps[i], theirs[i]);
    }
  }
  int32_t& known = steps[static_cast<size_t>(sender.rank)];
  known = std::max(known, static_cast<int32_t>(sender.index) + 1);
}

bool VectorClocks::Knows(LaneId lane, StepId peer) const {
  const Snapshot mine =
      lanes_[static_cast<size_t>(lane.lane * ranks_ + lane.rank)];
  return mine != kNothing &&
         clocks_[static_cast<size_t>(mine)]
                 .steps[static_cast<size_t>(peer.rank)] > peer.index;
}

VectorClocks::Snapshot VectorClocks::NewClock() {
  if (free_.empty()) {
    clocks_.emplace_back();
    free_.push_back(static_cast<Snapshot>(clocks_.size()) - 1);
  }
  const Snapshot snapshot = free_.back();
  free_.pop_back();
  clocks_[static_cast<size_t>(snapshot)].users = 1;
  return snapshot;
}

}  // namespace trnccl
