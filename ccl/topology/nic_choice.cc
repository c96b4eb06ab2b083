// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/nic_choice.h"

#include <algorithm>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace trnccl {
namespace {

struct Wiring {
  std::string_view family;  // of instance types
  int devices;
  const char* nics[16];  // by device
};

constexpr Wiring kWirings[] = {
    {"trn2",
     16,
     {"0000:c9:00.0", "0000:b4:00.0", "0000:b3:00.0", "0000:ca:00.0",
      "0000:6c:00.0", "0000:57:00.0", "0000:56:00.0", "0000:6d:00.0",
      "0000:98:00.0", "0000:83:00.0", "0000:82:00.0", "0000:99:00.0",
      "0000:f5:00.0", "0000:e0:00.0", "0000:df:00.0", "0000:f6:00.0"}},
};

// As the family writes it, "trn2" or "trn2u".
std::string_view FamilyOf(std::string_view instance_type) {
  return instance_type.substr(0, instance_type.find('.'));
}

Distance DistanceOf(const Nic& nic, const Locality& locality,
                    const Hardware& hardware) {
  const std::string wired = WiredNic(locality.instance_type, locality.device);
  if (!wired.empty() && nic.pci == wired) return {Closeness::kSwitch};
  const Distance to_device = hardware.Between(nic.pci, locality.device_pci);
  if (to_device.closeness != Closeness::kUnknown) return to_device;
  return hardware.Between(nic.pci, locality.cpus);
}

}  // namespace

std::string WiredNic(std::string_view instance_type, int device) {
  for (const Wiring& wiring : kWirings) {
    const bool known = device >= 0 && device < wiring.devices;
    if (known && FamilyOf(instance_type) == wiring.family)
      return wiring.nics[device];
  }
  return "";
}

absl::StatusOr<std::vector<NicChoice>> RankNics(const std::vector<Nic>& nics,
                                                const Locality& locality,
                                                const Hardware& hardware) {
  std::vector<NicChoice> choices;
  for (const Nic& nic : nics) {
    if (nic.state == Nic::State::kDown) continue;
    choices.push_back({nic, DistanceOf(nic, locality, hardware)});
  }
  if (choices.empty()) {
    return absl::UnavailableError(
        absl::StrCat("no network card is up",
                     nics.empty() ? "" : absl::StrCat(": ", NicsText(nics))));
  }
  const auto better = [](const NicChoice& a, const NicChoice& b) {
    return std::tuple(a.distance, -a.nic.mbps) <
           std::tuple(b.distance, -b.nic.mbps);
  };
  std::stable_sort(choices.begin(), choices.end(), better);
  const auto alike =
      std::upper_bound(choices.begin(), choices.end(), choices.front(), better);
  std::rotate(choices.begin(),
              choices.begin() + locality.local_rank % (alike - choices.begin()),
              alike);
  return choices;
}

}  // namespace trnccl
