// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Links in shared memory, between processes of one user on one machine (or
// threads of one process). Small payloads ride in the link itself, others in
// an arena that the sender walks through in turn, or by reference where they
// lie in memory of transports/shared_memory.h.
//
// Each rank has one memfd a communicator, which only it writes and peers map
// read-only: nothing is left behind by a killed job. Descriptors: one while
// connecting, none after, but one pidfd and one doorbell for each peer process,
// shared by all communicators. Memory: 1088 bytes a link, and the arena once a
// payload first needs it.
//
// A peer's death is an error of Progress(). A peer that closed its endpoint in
// order is none: what it sent can still be read.
//
// Thread rule: that of Transport.
//
//   ASSIGN_OR_RETURN(auto transport, MakeShmTransport({.doorbell =
//   &doorbell}));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "ccl/base/membership.h"
#include "transports/doorbell.h"
#include "transports/engine.h"
#include "transports/peer_memory.h"
#include "transports/transport.h"

namespace trnccl {

struct ShmOptions {
  // For payloads on their way, of each rank and communicator. Raised where it
  // wouldn't give each link a slice. Alike on all ranks.
  size_t arena_bytes = 4 << 20;
  bool by_reference = true;  // alike on all ranks
  bool peer_memory = true;   // see Traits
  // Rung by peers while this rank sleeps; null: this rank never sleeps.
  const Doorbell* doorbell = nullptr;
  // False: fences with each message instead, as where the kernel has no
  // membarrier; see sleep_barrier.h.
  bool sleep_barriers = true;
  // The number of each link's first message, for tests of its wrap. Alike on
  // all ranks.
  uint32_t first_sequence = 0;
};

absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransport(
    const ShmOptions& options);

// The memory of the peers of a connected transport of MakeShmTransport(), which
// outlives it.
std::unique_ptr<PeerMemory> MakeShmPeerMemory(Transport& transport);

// The engine of a connected transport of MakeShmTransport(), which reaches all
// ranks of the communicator and outlives the engine.
std::unique_ptr<Engine> MakeShmEngine(const Membership& membership,
                                      Transport& transport);

}  // namespace trnccl
