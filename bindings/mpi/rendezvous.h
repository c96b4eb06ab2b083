// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Hands process 0's unique id to the others where no MPI does: over TCP, at
// MASTER_ADDR and the port after MASTER_PORT (torchrun keeps MASTER_PORT).
//
// Thread rule: call from one thread of each process.
//
//   ASSIGN_OR_RETURN(RendezvousAddress address, FindRendezvous(getenv));
//   RETURN_IF_ERROR(ShareId(launch, address, &id));
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bindings/mpi/launch.h"
#include "ccl/trnccl.h"

namespace trnccl::perf {

struct RendezvousAddress {
  std::string host;
  int port = 0;
  int64_t timeout_ms = 60'000;
};

// InvalidArgument, saying what to set, if the environment has no address.
absl::StatusOr<RendezvousAddress> FindRendezvous(Environment environment);

// Process 0 gives *id, the others get it. Fails within the timeout; process 0
// names who hasn't come.
absl::Status ShareId(const Launch& launch, const RendezvousAddress& address,
                     trncclUniqueId* id);

}  // namespace trnccl::perf
