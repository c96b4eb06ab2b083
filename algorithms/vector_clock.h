// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Which steps are sure to have happened before which, in any order of events:
// a step comes after the earlier steps of its lane and after the steps that
// sent it messages. That a link was empty again tells nothing: a real link may
// hold more than one message. Lanes don't talk to each other, so each lane is
// a world of its own.
//
// A clock costs an integer per rank; lanes and messages share it until one
// of them learns something new.
//
// Thread rule: thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trnccl {

class VectorClocks {
 public:
  using Snapshot = int32_t;
  static constexpr Snapshot kNothing = -1;  // knows of no other rank's step

  struct LaneId {
    int rank = 0;
    int lane = 0;
  };
  struct StepId {
    int rank = 0;
    int64_t index = 0;
  };

  VectorClocks(int ranks, int lanes);

  // What the lane knows now; to be released.
  Snapshot Take(LaneId lane);
  void Release(Snapshot snapshot);
  // The lane learns of the sender's step, and of all that its snapshot knew.
  void Learn(LaneId lane, StepId sender, Snapshot snapshot);
  // Whether the peer's step of the same lane has surely happened.
  bool Knows(LaneId lane, StepId peer) const;

 private:
  struct Clock {
    std::vector<int32_t> steps;  // by rank: how many are known
    int users = 0;
  };

  Snapshot& SnapshotOf(LaneId lane) {
    return lanes_[static_cast<size_t>(lane.lane * ranks_ + lane.rank)];
  }
  Snapshot NewClock();

  int ranks_;
  std::vector<Snapshot> lanes_;
  std::vector<Clock> clocks_;
  std::vector<Snapshot> free_;
};

}  // namespace trnccl
