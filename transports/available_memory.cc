// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/available_memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace trnccl {
namespace {

uint64_t MachineBytes() {
  std::ifstream file("/proc/meminfo");
  uint64_t kib = 0;
  bool known = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:") || line.starts_with("SwapFree:")) {
      kib += std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10);
      known = true;
    }
  }
  return known ? kib << 10 : UINT64_MAX;
}

// A control group of version 2; "max" and an absent file mean no limit.
uint64_t ControlGroupBytes() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    std::ifstream limit("/sys/fs/cgroup" + line.substr(3) + "/memory.max");
    uint64_t bytes = 0;
    return limit >> bytes ? bytes : UINT64_MAX;
  }
  return UINT64_MAX;
}

}  // namespace

uint64_t AvailableMemoryBytes() {
  return std::min(MachineBytes(), ControlGroupBytes());
}

}  // namespace trnccl
