// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/fabric.h"

#include "transports/fabric/fabric_transport.h"
#include "transports/fabric/port.h"

namespace trnccl {

absl::StatusOr<std::unique_ptr<Transport>> MakeFabricTransport(
    const FabricOptions& options) {
  return fabric::FabricTransport::Create(options);
}

absl::StatusOr<std::shared_ptr<fabric::Port>> OpenFabricPort(
    const fabric::PortOptions& options) {
  return fabric::Port::Open(options);
}

}  // namespace trnccl
