// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/hardware.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace trnccl {
namespace {

struct Meeting {
  hwloc_obj_t at = nullptr;
  int hops = 0;
};

// The lowest object that has both in it; hwloc's own function doesn't know
// devices.
Meeting WhereTheyMeet(hwloc_obj_t a, hwloc_obj_t b) {
  int up = 0;
  for (; a != nullptr; a = a->parent, ++up) {
    int down = 0;
    for (hwloc_obj_t other = b; other != nullptr;
         other = other->parent, ++down) {
      if (a == other) return {a, up + down};
    }
  }
  return {};
}

Closeness OfBridge(hwloc_obj_t bridge) {
  return bridge->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST
             ? Closeness::kHostBridge
             : Closeness::kSwitch;
}

// What the processors and memory of `object` are in.
Closeness OfNormal(hwloc_obj_t object) {
  if (hwloc_bitmap_weight(object->nodeset) == 1) return Closeness::kNumaNode;
  for (; object != nullptr; object = object->parent) {
    if (object->type == HWLOC_OBJ_PACKAGE) return Closeness::kPackage;
  }
  return Closeness::kMachine;
}

}  // namespace

const char* Name(Closeness closeness) {
  switch (closeness) {
    case Closeness::kSwitch:
      return "behind the same PCI switch";
    case Closeness::kHostBridge:
      return "at the same host bridge";
    case Closeness::kNumaNode:
      return "at the same NUMA node";
    case Closeness::kPackage:
      return "at the same package";
    case Closeness::kMachine:
      return "elsewhere in the machine";
    case Closeness::kUnknown:
      break;
  }
  return "nobody knows where";
}

absl::StatusOr<Hardware> Hardware::Load() { return LoadFrom(""); }

absl::StatusOr<Hardware> Hardware::FromXmlFile(const std::string& path) {
  return LoadFrom(path);
}

absl::StatusOr<Hardware> Hardware::LoadFrom(const std::string& xml_path) {
  const auto failed = [&] {
    return absl::UnavailableError(absl::StrCat(
        "hwloc: can't read the hardware", xml_path.empty() ? "" : " from ",
        xml_path, ": ", std::strerror(errno)));
  };
  hwloc_topology_t raw = nullptr;
  errno = 0;
  if (hwloc_topology_init(&raw) != 0) return failed();
  Topology topology(raw);
  if (!xml_path.empty() && hwloc_topology_set_xml(raw, xml_path.c_str()) != 0) {
    return failed();
  }
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(raw) != 0) return failed();
  return Hardware(std::move(topology));
}

hwloc_obj_t Hardware::Find(const std::string& pci) const {
  if (pci.empty()) return nullptr;
  return hwloc_get_pcidev_by_busidstring(topology_.get(), pci.c_str());
}

Distance Hardware::Between(const std::string& pci,
                           const std::string& other) const {
  const hwloc_obj_t a = Find(pci);
  const hwloc_obj_t b = Find(other);
  if (a == nullptr || b == nullptr) return {};
  const Meeting meeting = WhereTheyMeet(a, b);
  // A function of the very same card.
  if (meeting.at == a || meeting.at->type == HWLOC_OBJ_BRIDGE) {
    return {meeting.at == a ? Closeness::kSwitch : OfBridge(meeting.at),
            meeting.hops};
  }
  return {OfNormal(meeting.at)};
}

Distance Hardware::Between(const std::string& pci, const CpuSet& cpus) const {
  const hwloc_obj_t card = Find(pci);
  if (card == nullptr || cpus.empty()) return {};
  const hwloc_obj_t home = hwloc_get_non_io_ancestor_obj(topology_.get(), card);
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> set(
      hwloc_bitmap_alloc(), &hwloc_bitmap_free);
  for (const int cpu : cpus) {
    hwloc_bitmap_set(set.get(), static_cast<unsigned>(cpu));
  }
  // Where the process may run in several places, the closest counts.
  if (hwloc_bitmap_intersects(home->cpuset, set.get())) {
    return {OfNormal(home)};
  }
  const hwloc_obj_t there =
      hwloc_get_obj_covering_cpuset(topology_.get(), set.get());
  if (there == nullptr) return {Closeness::kMachine};
  return {OfNormal(WhereTheyMeet(home, there).at)};
}

}  // namespace trnccl
