// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The network cards of a machine, as the kernel lists them. Which is closest to
// whom is in nic_choice.h.
//
// Thread rule: plain values; ListNics() reads the file system.
//
//   for (const Nic& nic : ListNics("/sys")) ... nic.name, nic.pci ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace trnccl {

struct Nic {
  enum class State : uint8_t { kDown, kUp };

  std::string name;  // of the interface, the device or the fabric's domain
  std::string pci;   // "0000:c9:00.0"; empty if it has none
  int64_t mbps = 0;  // 0: unknown
  State state = State::kUp;

  bool operator==(const Nic&) const = default;
};

// Those that have a place on the PCI bus, under /sys/class/infiniband and
// /sys/class/net, by name.
std::vector<Nic> ListNics(const std::string& sysfs);

// "eth0,0000:00:05.0,25000,up;...": names have neither comma nor semicolon.
std::string NicsText(const std::vector<Nic>& nics);
absl::StatusOr<std::vector<Nic>> ParseNics(std::string_view text);

}  // namespace trnccl
