// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/shm.h"

#include <utility>

#include "transports/shm/shm_engine.h"
#include "transports/shm/shm_peer_memory.h"
#include "transports/shm/shm_transport.h"

namespace trnccl {

absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransport(
    const ShmOptions& options) {
  return shm::ShmTransport::Create(options);
}

std::unique_ptr<PeerMemory> MakeShmPeerMemory(Transport& transport) {
  auto& shm = static_cast<shm::ShmTransport&>(transport);
  shm::ShmPeerMemory::Options options = {
      .gate = &shm.gate(),
      .maps = shm.traits().by_reference,
      .reaches_unmapped = shm.traits().peer_memory};
  for (const shm::Peer& peer : shm.peers())
    options.pids.push_back(peer.address.pid);
  return std::make_unique<shm::ShmPeerMemory>(std::move(options));
}

std::unique_ptr<Engine> MakeShmEngine(const Membership& membership,
                                      Transport& transport) {
  auto& shm = static_cast<shm::ShmTransport&>(transport);
  ShmEngineOptions options = {.membership = membership,
                              .reaches_unmapped = shm.traits().peer_memory,
                              .gate = &shm.gate()};
  options.pids.resize(static_cast<size_t>(membership.ranks));
  for (const shm::Peer& peer : shm.peers())
    options.pids[static_cast<size_t>(peer.rank)] = peer.address.pid;
  return MakeShmEngine(options);
}

}  // namespace trnccl
