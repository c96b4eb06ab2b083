// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Where things are in a machine, by hwloc: how close a place on the PCI bus is
// to another one, or to processors.
//
// Thread rule: immutable; thread-safe. Load() looks at the machine, which takes
// some milliseconds.
//
//   ASSIGN_OR_RETURN(const Hardware hardware, Hardware::Load());
//   hardware.Between("0000:c9:00.0", "0000:cc:00.0").closeness
#pragma once

#include <hwloc.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ccl/topology/cpu_set.h"

namespace trnccl {

// What two places share, the closest first.
enum class Closeness : uint8_t {
  kSwitch,      // of PCI
  kHostBridge,  // a root of PCI
  kNumaNode,
  kPackage,
  kMachine,
  kUnknown,  // one isn't on the bus
};

// "behind the same PCI switch"
const char* Name(Closeness closeness);

struct Distance {
  Closeness closeness = Closeness::kUnknown;
  int hops = 0;  // bridges between them, where they share one

  auto operator<=>(const Distance&) const = default;
};

class Hardware {
 public:
  static absl::StatusOr<Hardware> Load();
  // Another machine, as `lstopo --of xml` or hwloc wrote it.
  static absl::StatusOr<Hardware> FromXmlFile(const std::string& path);

  // PCI addresses like "0000:c9:00.0".
  Distance Between(const std::string& pci, const std::string& other) const;
  Distance Between(const std::string& pci, const CpuSet& cpus) const;

 private:
  struct Destroy {
    void operator()(hwloc_topology_t topology) const {
      hwloc_topology_destroy(topology);
    }
  };
  using Topology = std::unique_ptr<hwloc_topology, Destroy>;

  explicit Hardware(Topology topology) : topology_(std::move(topology)) {}

  static absl::StatusOr<Hardware> LoadFrom(const std::string& xml_path);
  hwloc_obj_t Find(const std::string& pci) const;

  Topology topology_;
};

}  // namespace trnccl
