// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Connects to a machine of which several addresses are known, not all of them
// reachable from here: the first that answers counts. An attempt that doesn't
// answer soon gets company by the next one, and stays in the race.
//
// Thread rule: driven by the calling thread.
//
//   ASSIGN_OR_RETURN(Socket socket, Dial(id.addresses, patience));
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "ccl/bootstrap/address.h"
#include "ccl/bootstrap/socket.h"

namespace trnccl {

// Unavailable once all have failed, or none has answered for some seconds: the
// error lists what was tried, and what came of it.
absl::StatusOr<Socket> Dial(const std::vector<SocketAddress>& addresses,
                            const Patience& patience);

}  // namespace trnccl
