// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Which of its ways onto the network a rank takes, by what all ranks know of
// each other: addresses that the other nodes reach, and cards that are near and
// not those of the node's other ranks.
//
// Thread rule: pure functions.
//
//   NetworkAddresses(topology.hosts, rank).front();  // "10.1.0.1"
#pragma once

#include <string>
#include <vector>

#include "ccl/topology/hardware.h"
#include "ccl/topology/host_facts.h"
#include "ccl/topology/topology.h"

namespace trnccl {

// The rank's own IP addresses, best first: those by which ranks of its node
// have met ranks of others, then the rest; of one family that all ranks have.
// Where ranks have none in common, all of its own.
std::vector<std::string> NetworkAddresses(const std::vector<HostFacts>& hosts,
                                          int rank);

// Places on the PCI bus of the cards of the topology's rank, best first. Ranks
// of a node to which the same cards are near begin with different ones.
std::vector<std::string> PciOrder(const Topology& topology,
                                  const Hardware& hardware);

}  // namespace trnccl
