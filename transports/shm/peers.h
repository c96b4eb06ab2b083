// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Finding and checking the peers of a communicator: everyone maps everyone's
// control memory, and knows when all have mapped its own.
//
// Thread rule: thread-compatible.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transports/shared_memory.h"
#include "transports/shm/address.h"
#include "transports/shm/control.h"
#include "transports/shm/peer_process.h"
#include "transports/transport.h"

namespace trnccl::shm {

struct Peer {
  int rank = 0;
  size_t my_index = 0;  // this rank's place among the peer's peers
  Address address;
  std::shared_ptr<PeerProcess> process;
  SharedMapping mapping;
  Control control;  // only to read
  bool gone = false;

  std::string Name() const;  // "rank 3 (pid 123)"
};

// Opens the processes and maps the memories of all peers, then waits until all
// have mapped ours. `own` is initialised and ready.
absl::StatusOr<std::vector<Peer>> ConnectPeers(const ConnectOptions& options,
                                               const Address& address,
                                               const Control& own);

// Whether the kernel lets this process read the peer's memory, and so, by the
// same rule, write it.
bool ReachesMemoryOf(const Peer& peer);

}  // namespace trnccl::shm
