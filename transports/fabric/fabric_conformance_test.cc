// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/conformance/conformance.h"
#include "transports/fabric/conformance_forms.h"

namespace trnccl {
namespace {

FabricOptions OverLoopback(const std::string& provider,
                           FabricProtocol protocol) {
  FabricOptions options = Over(provider, protocol);
  options.port.adapters = {"lo"};
  return options;
}

FabricOptions Short() {
  FabricOptions options = OverLoopback("net", FabricProtocol::kTagged);
  options.port.eager_bytes = 16;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Fabric, Conformance,
    ::testing::Values(
        Fabric("net_tagged", OverLoopback("net", FabricProtocol::kTagged)),
        Fabric("net_written", OverLoopback("net", FabricProtocol::kWrite)),
        Fabric("net_long", Short()),
        Slow(Fabric("rxm", OverLoopback("tcp;ofi_rxm", FabricProtocol::kAuto))),
        Slow(Fabric("rxd", OverLoopback("udp;ofi_rxd", FabricProtocol::kAuto))),
        Fabric("shm", Over("shm", FabricProtocol::kAuto))),
    SubjectName);

}  // namespace
}  // namespace trnccl
