// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// How ranks meet: each says hello to the root, learns its parent, and links to
// it; once the whole tree stands, the root's word goes down it. A trouble that
// any rank sees goes up, and the root's verdict about it down, so that all fail
// alike and with the cause.
//
//   the root: the first rank, in the process that made the id, to get here
//   the i-th to arrive has the children 2i+1 and 2i+2; so a parent has always
//   arrived before, and the root keeps no connection but its children's, and
//   those of ranks that have still to link, so that their deaths are seen
//
// Thread rule: driven by the calling thread.
//
//   ASSIGN_OR_RETURN(Tree tree, Join(id, membership, options));
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/base/membership.h"
#include "ccl/bootstrap/interfaces.h"
#include "ccl/bootstrap/socket.h"
#include "ccl/bootstrap/tree.h"
#include "ccl/bootstrap/unique_id.h"

namespace trnccl {

struct BootstrapOptions {
  Patience patience = {Deadline::Never()};
  // How errors name this rank's machine, and its process.
  std::string host;
  // Lines "name=value" that all ranks must have alike: the library's version,
  // the settings that ranks decide from (AgreedSettingsText).
  std::string agreement;
  // Which interfaces an IPv6 link-local address of the id may be reached by.
  InterfaceChoice interfaces;
  // Once a trouble is known, how long the root waits for the ranks still to
  // come, so that they hear of it too. Half a second if a rank was lost.
  int grace_ms = 5'000;
};

// With listeners this rank is the root; without, if its process made the id.
absl::StatusOr<Tree> Join(const UniqueId& id, Membership me,
                          const BootstrapOptions& options,
                          std::vector<Socket> listeners);

}  // namespace trnccl
