// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Hands process 0's unique id to the others where no MPI does: over TCP, at
// MASTER_ADDR and the port after MASTER_PORT (torchrun keeps MASTER_PORT).
// Under srun neither needs to be set: the step's first node and a port by the
// job's number stand in.
//
// Thread rule: call from one thread of each process.
//
//   ASSIGN_OR_RETURN(RendezvousAddress address, FindRendezvous(getenv));
//   RETURN_IF_ERROR(ShareId(launch, address, &id));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

// The first of Slurm's host list: "trn001" of "trn[001-004,7],head".
std::string FirstHost(std::string_view hosts);

// Process 0 gives *id, the others get it. Process 0 listens at all addresses of
// its machine, unless the name is the loopback interface's; the others try all
// addresses of the name, and again if there's none yet. Fails
// within the timeout; process 0 names who hasn't come.
absl::Status ShareId(const Launch& launch, const RendezvousAddress& address,
                     trncclUniqueId* id);

}  // namespace trnccl::perf
