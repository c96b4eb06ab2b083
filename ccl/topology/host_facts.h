// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What one rank knows of where it runs, and the text in which it tells the
// others. What follows from all ranks' facts is in topology.h.
//
// Thread rule: plain values; GatherHostFacts() is thread-safe and tells of the
// calling thread's processors.
//
//   ASSIGN_OR_RETURN(HostFacts mine, GatherHostFacts(settings.host_id));
//   ... HostFactsText(mine) to all, theirs through ParseHostFacts() ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/topology/cpu_set.h"
#include "ccl/topology/nics.h"

namespace trnccl {

struct HostFacts {
  std::string host_id;  // ranks with the same one share a node
  // Ranks with the same one share processors: nodes that are containers or
  // namespaces of one machine have it alike.
  std::string machine;
  std::string hostname;
  int64_t pid = 0;
  CpuSet cpus;  // where the rank may run
  // Processors that share a core or a third-level cache with one of these;
  // empty where the kernel doesn't tell.
  std::vector<CpuSet> cores;
  std::vector<CpuSet> l3_groups;
  std::vector<Nic> nics;  // those on the PCI bus
  // The rank's own IP addresses, best first: at which it has met ranks of other
  // hosts, and those of the interfaces that its settings choose. Nobody knows
  // them before ranks meet.
  std::vector<std::string> met_at;
  std::vector<std::string> addresses;

  bool operator==(const HostFacts&) const = default;
};

// An empty `host_id` takes the host's name and boot id: containers of one
// machine share only the latter, and can't share memory. Where no boot id can
// be read, `host_id` is taken for the machine's as well.
absl::StatusOr<HostFacts> GatherHostFacts(const std::string& host_id);

// Lines, the first with the form's version.
std::string HostFactsText(const HostFacts& facts);
inline constexpr int kHostFactsLines = 11;

// Strict: takes exactly what HostFactsText() of this version writes.
absl::StatusOr<HostFacts> ParseHostFacts(std::string_view text);

}  // namespace trnccl
