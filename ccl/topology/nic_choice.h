// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Which network cards a rank should use: the closest to its device, or to where
// it runs. Only orders what it's given: which cards there are, and which of
// them reach the peers, others say.
//
// Thread rule: pure functions.
//
//   ASSIGN_OR_RETURN(const std::vector<NicChoice> choices,
//                    RankNics(nics, {.cpus = facts.cpus}, hardware));
//   choices.front().nic.name
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/topology/cpu_set.h"
#include "ccl/topology/hardware.h"
#include "ccl/topology/nics.h"

namespace trnccl {

// Of a rank. A device on the PCI bus counts more than processors.
struct Locality {
  std::string device_pci;
  CpuSet cpus;
  // On an instance type whose wiring is known, the number of the device.
  std::string instance_type;
  int device = -1;
  // Among the ranks of the node: spreads them over cards as close as each
  // other.
  int local_rank = 0;
};

struct NicChoice {
  Nic nic;
  Distance distance;
};

// Those that are up, the closest first, faster ones before slower ones. An
// error if none is up; it names all.
absl::StatusOr<std::vector<NicChoice>> RankNics(const std::vector<Nic>& nics,
                                                const Locality& locality,
                                                const Hardware& hardware);

// The EFA card that's wired to a Neuron device; "" where that isn't known. The
// bus alone doesn't tell: a device's card isn't always the one next to it.
std::string WiredNic(std::string_view instance_type, int device);

}  // namespace trnccl
