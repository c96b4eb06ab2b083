// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Where the ranks of a communicator can meet again when it has failed: each
// listens at a place of its own, which all know. The first of those who are
// left serves the others there.
//
// Thread rule: thread-compatible; const functions from any thread.
//
//   auto reunion = Reunion::Open(secret, membership, topology);
//   reunion->SetPlaces(everyones_addresses);  // each one's reunion->address()
//   ASSIGN_OR_RETURN(const UniqueId id, reunion->PlaceOf(first_survivor));
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/base/membership.h"
#include "ccl/bootstrap/unique_id.h"
#include "ccl/topology/topology.h"

namespace trnccl {

class Reunion {
 public:
  // A rank that can't listen (no descriptors, say) has no place; only who'd
  // meet there minds.
  static std::unique_ptr<Reunion> Open(const Secret& secret, Membership me,
                                       const Topology& topology);

  // For the others; "" without a place.
  std::string address() const;
  void SetPlaces(std::vector<std::string> addresses) {
    addresses_ = std::move(addresses);
  }

  absl::StatusOr<UniqueId> PlaceOf(int rank) const;
  // This rank's own, to serve the others at; null if it has none.
  const MeetingPlace* place() const { return place_.get(); }

  // For a communicator made from this one.
  Secret SecretFor(std::string_view name) const {
    return DeriveSecret(secret_, name);
  }

 private:
  explicit Reunion(const Secret& secret) : secret_(secret) {}

  const Secret secret_;
  std::unique_ptr<MeetingPlace> place_;
  std::vector<std::string> addresses_;  // by rank
};

}  // namespace trnccl
