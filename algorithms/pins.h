// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Which memory the messages of a symbolic run may still point to. A message by
// reference is read by its receiver's step, so until that step is sure to have
// happened its memory must stay as it is.
//
// Thread rule: thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "algorithms/network.h"
#include "algorithms/vector_clock.h"

namespace trnccl {

class Pins {
 public:
  // A list of messages that point to one place.
  using List = int32_t;
  static constexpr List kNone = -1;
  // A sent message, in all its copies.
  using Reference = int32_t;

  Reference Send(const Firing& firing);
  void Pin(List& list, Reference reference, const Firing& firing);
  void Taken(Reference reference, int32_t receiver, const Firing& by);

  // Whether all of the list's messages have surely been read when this step
  // fires, in any order of events.
  absl::Status CheckRead(List list, const Firing& firing,
                         const VectorClocks& clocks) const;

 private:
  struct Node {
    Reference reference = 0;
    int32_t receivers = 0;
    List next = kNone;
  };
  struct Copy {
    int receiver = 0;
    int64_t taken_by = -1;  // step of the receiver's lane
  };
  std::vector<Node> nodes_;
  std::vector<Copy> copies_;  // those of one message lie side by side
};

}  // namespace trnccl
