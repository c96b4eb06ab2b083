// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The suite over a provider with EFA's manners (test_provider/README.md).
#include <cstdlib>

#include "transports/conformance/conformance.h"
#include "transports/fabric/conformance_forms.h"

namespace trnccl {
namespace {

// Before libfabric looks for providers.
const bool provider_is_named = [] {
  return setenv("FI_PROVIDER_PATH", "transports/fabric/test_provider", 1) == 0;
}();

// With the provider's own settings.
Subject Manners(const std::string& name, const std::string& fabric,
                const FabricOptions& form) {
  Subject subject = Fabric(name, form);
  subject.make = [fabric, make = subject.make](const RankOptions& rank) {
    setenv("MANNERS_FABRIC", fabric.c_str(), 1);
    return make(rank);
  };
  return subject;
}

FabricOptions Railed(FabricProtocol protocol, int rails) {
  FabricOptions options = Over("manners", protocol);
  options.port.rails = rails;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Manners, Conformance,
    ::testing::Values(
        Manners("efa_tagged", "efa", Railed(FabricProtocol::kTagged, 1)),
        Manners("efa_written", "efa", Railed(FabricProtocol::kWrite, 1)),
        Manners("efa_two_rails", "efa", Railed(FabricProtocol::kTagged, 2)),
        Manners("direct", "efa-direct", Railed(FabricProtocol::kAuto, 1)),
        Manners("direct_two_rails", "efa-direct",
                Railed(FabricProtocol::kAuto, 2))),
    SubjectName);

}  // namespace
}  // namespace trnccl
