// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/shm.h"

#include "transports/shm/shm_transport.h"

namespace trnccl {

absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransport(
    const ShmOptions& options) {
  return shm::ShmTransport::Create(options);
}

}  // namespace trnccl
