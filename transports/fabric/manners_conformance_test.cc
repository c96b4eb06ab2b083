// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The suite over a provider with EFA's manners (test_provider/README.md), and
// with worse ones: short queues, refusals, receivers that aren't ready.
#include "transports/conformance/conformance.h"
#include "transports/fabric/manners.h"

namespace trnccl {
namespace {

// Before anything else asks libfabric.
const bool provider_is_named = (NameTheTestProvider(), true);

FabricOptions Railed(FabricProtocol protocol, int rails) {
  FabricOptions options = OverManners(protocol);
  options.port.rails = rails;
  return options;
}

constexpr auto kTagged = FabricProtocol::kTagged;
constexpr auto kWrite = FabricProtocol::kWrite;

INSTANTIATE_TEST_SUITE_P(
    Manners, Conformance,
    ::testing::Values(
        Manners("efa_tagged", {{"FABRIC", "efa"}}, Railed(kTagged, 1)),
        Manners("efa_written", {{"FABRIC", "efa"}, {"SEED", "2"}},
                Railed(kWrite, 1)),
        Manners("efa_two_rails", {{"FABRIC", "efa"}, {"SEED", "3"}},
                Railed(kTagged, 2)),
        Manners("direct", {{"FABRIC", "efa-direct"}, {"SEED", "4"}},
                Railed(kWrite, 1)),
        Manners("direct_four_rails",
                {{"FABRIC", "efa-direct"}, {"SEED", "5"}, {"NICS", "4"}},
                Railed(kWrite, 4))),
    SubjectName);

INSTANTIATE_TEST_SUITE_P(
    Unkind, Conformance,
    ::testing::Values(
        Manners("short_receives",
                {{"FABRIC", "efa"}, {"SEED", "6"}, {"RX_SIZE", "8"}},
                Railed(kTagged, 1)),
        Manners("short_transmits",
                {{"FABRIC", "efa"}, {"SEED", "7"}, {"TX_SIZE", "4"}},
                Railed(kTagged, 1)),
        Manners("short_transmits_direct",
                {{"FABRIC", "efa-direct"}, {"SEED", "8"}, {"TX_SIZE", "4"}},
                Railed(kWrite, 1)),
        Manners("refusing",
                {{"FABRIC", "efa"}, {"SEED", "9"}, {"EAGAIN", "60"}},
                Railed(kTagged, 2)),
        Manners("refusing_direct",
                {{"FABRIC", "efa-direct"}, {"SEED", "10"}, {"EAGAIN", "60"}},
                Railed(kWrite, 2)),
        Manners("one_completion",
                {{"FABRIC", "efa-direct"}, {"SEED", "11"}, {"CQ_SIZE", "1"}},
                Railed(kWrite, 1)),
        Manners("not_ready_is_an_error",
                {{"FABRIC", "efa-direct"},
                 {"SEED", "12"},
                 {"RNR", "error"},
                 {"RX_SIZE", "4"}},
                Railed(kWrite, 1))),
    SubjectName);

}  // namespace
}  // namespace trnccl
