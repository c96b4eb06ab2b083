// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/pins.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace trnccl {

Pins::Reference Pins::Send(const Firing& firing) {
  const auto reference = static_cast<Reference>(copies_.size());
  for (int peer : firing.step->send_to) copies_.push_back({.receiver = peer});
  return reference;
}

void Pins::Pin(List& list, Reference reference, const Firing& firing) {
  nodes_.push_back(
      {.reference = reference,
       .receivers = static_cast<int32_t>(firing.step->send_to.size()),
       .next = list});
  list = static_cast<List>(nodes_.size()) - 1;
}

void Pins::Taken(Reference reference, int32_t receiver, const Firing& by) {
  copies_[static_cast<size_t>(reference + receiver)].taken_by = by.index;
}

absl::Status Pins::CheckRead(List list, const Firing& firing,
                             const VectorClocks& clocks) const {
  for (; list != kNone; list = nodes_[static_cast<size_t>(list)].next) {
    const Node& node = nodes_[static_cast<size_t>(list)];
    for (int32_t i = 0; i < node.receivers; ++i) {
      const Copy& copy = copies_[static_cast<size_t>(node.reference + i)];
      if (copy.taken_by >= 0 &&
          clocks.Knows({firing.rank, firing.lane},
                       {.rank = copy.receiver, .index = copy.taken_by})) {
        continue;
      }
      return absl::InternalError(
          absl::StrCat("while rank ", copy.receiver,
                       " may still be reading it by reference"));
    }
  }
  return absl::OkStatus();
}

}  // namespace trnccl
