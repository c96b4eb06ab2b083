// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/shm.h"

#include "transports/shm/shm_engine.h"
#include "transports/shm/shm_transport.h"

namespace trnccl {

absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransport(
    const ShmOptions& options) {
  return shm::ShmTransport::Create(options);
}

std::unique_ptr<Engine> MakeShmEngine(const Membership& membership,
                                      const Transport& transport) {
  const auto& shm = static_cast<const shm::ShmTransport&>(transport);
  return MakeShmEngine({.membership = membership,
                        .reaches_unmapped = shm.traits().peer_memory,
                        .gate = shm.MakeGate()});
}

}  // namespace trnccl
