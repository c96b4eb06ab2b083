// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Making communicators: from a unique id, or by splitting one. Collective over
// the ranks that it's for.
//
// Thread rule: thread-safe for different communicators.
//
//   ASSIGN_OR_RETURN(auto world, MakeCommunicator({.id = id, ...}));
//   ASSIGN_OR_RETURN(auto half, SplitCommunicator(world.get(), {.color = 0}));
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/base/membership.h"
#include "ccl/base/settings.h"
#include "ccl/bootstrap/unique_id.h"
#include "ccl/communicator/communicator.h"

namespace trnccl {

// The lanes of collectives on each link, by the settings alone.
int CollectiveLanes(const Settings& settings);

struct MakeRequest {
  UniqueId id;
  Membership membership;
  Settings settings;
  std::string name;
  const std::atomic<bool>* abort = nullptr;
  // Of all that's counted and wraps: calls, each link's messages, offers. Alike
  // on all ranks; for tests.
  uint32_t first_sequence = 1;
  // Who the ranks are elsewhere, which all must say alike; may be empty.
  std::string members;
  // Where this rank is to serve the others, if it is (Reunion).
  const MeetingPlace* place = nullptr;
};
absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(
    const MakeRequest& request);

inline constexpr int kNoColor = -1;

struct SplitRequest {
  int color = 0;  // kNoColor: take part in the call alone
  int key = 0;
  Settings settings;
  std::string name;
};
// Null where the color is kNoColor.
absl::StatusOr<std::unique_ptr<Communicator>> SplitCommunicator(
    Communicator* parent, const SplitRequest& request);

// Everyone's text, by rank; a collective on the communicator.
absl::StatusOr<std::vector<std::string>> GatherTexts(Communicator* communicator,
                                                     const std::string& mine);

}  // namespace trnccl
