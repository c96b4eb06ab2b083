// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// New communicators of some of another one's ranks, or of all and newcomers.
// The old one may have failed where ranks are left out; it stays as it is.
//
// Thread rule: thread-safe for different communicators.
//
//   ASSIGN_OR_RETURN(auto rest, ShrinkCommunicator(*world, {.excluded = {2}}));
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/base/settings.h"
#include "ccl/bootstrap/unique_id.h"
#include "ccl/communicator/communicator.h"

namespace trnccl {

struct ShrinkRequest {
  std::vector<int> excluded;  // alike on all who are left
  Settings settings;
  std::string name;
};
// Called by all ranks that aren't excluded, which keep their order. It's no
// call on the parent: those excluded have no part in it.
absl::StatusOr<std::unique_ptr<Communicator>> ShrinkCommunicator(
    const Communicator& parent, const ShrinkRequest& request);

struct GrowRequest {
  int ranks = 0;               // of the new one
  std::optional<UniqueId> id;  // at least one rank has it
  Settings settings;
  std::string name;
};
// Called by all ranks of the parent, a collective on it: they keep their
// numbers. Newcomers make a communicator by the id.
absl::StatusOr<std::unique_ptr<Communicator>> GrowCommunicator(
    Communicator* parent, const GrowRequest& request);

}  // namespace trnccl
