// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/interfaces.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ccl/base/status_macros.h"
#include "transports/system_error.h"

namespace trnccl {
namespace {

class NameFilter {
 public:
  explicit NameFilter(std::string_view text) {
    if (text.starts_with('^')) {
      excludes_ = true;
      text.remove_prefix(1);
    }
    if (text.starts_with('=')) {
      exact_ = true;
      text.remove_prefix(1);
    }
    names_ = absl::StrSplit(absl::string_view(text.data(), text.size()), ',',
                            absl::SkipWhitespace());
  }

  // Whether the user named what to take, loopback and bridges included.
  bool selects() const { return !excludes_ && !names_.empty(); }

  bool Allows(const std::string& interface) const {
    if (names_.empty()) return true;
    const bool named =
        std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
          return exact_ ? interface == name
                        : std::string_view(interface).starts_with(name);
        });
    return named != excludes_;
  }

 private:
  bool excludes_ = false;
  bool exact_ = false;
  std::vector<std::string> names_;
};

enum class Grade { kPhysical, kVirtual, kLoopback };

Grade GradeOf(const NetworkInterface& interface) {
  if (std::any_of(interface.addresses.begin(), interface.addresses.end(),
                  [](const SocketAddress& a) { return a.IsLoopback(); })) {
    return Grade::kLoopback;
  }
  for (std::string_view prefix :
       {"docker", "podman", "virbr", "vnet", "veth", "br-", "cni", "flannel",
        "cali", "kube", "lxc", "lxd"}) {
    if (std::string_view(interface.name).starts_with(prefix)) {
      return Grade::kVirtual;
    }
  }
  return Grade::kPhysical;
}

bool FamilyAllowed(SocketFamily wanted, const SocketAddress& address) {
  if (wanted == SocketFamily::kAny) return true;
  return (wanted == SocketFamily::kIpv4) ==
         (address.family == SocketAddress::Family::kIpv4);
}

std::vector<SocketAddress> UsableAddresses(const NetworkInterface& interface,
                                           SocketFamily family) {
  std::vector<SocketAddress> usable;
  for (const SocketAddress& address : interface.addresses) {
    if (FamilyAllowed(family, address)) usable.push_back(address);
  }
  return usable;
}

int Preference(const SocketAddress& address) {
  if (address.IsLinkLocal()) return 2;
  return address.family == SocketAddress::Family::kIpv4 ? 0 : 1;
}

// Why an interface can't be taken; empty if it can.
std::string Objection(const NetworkInterface& interface,
                      const InterfaceChoice& choice) {
  if (interface.state == NetworkInterface::State::kDown) return "down";
  if (!NameFilter(choice.names).Allows(interface.name)) {
    return "left out by name";
  }
  if (interface.addresses.empty()) return "no address";
  if (UsableAddresses(interface, choice.family).empty()) {
    return "no address of the wanted family";
  }
  return "";
}

// Those without objection; unless they're named, of the best grade there is.
std::vector<const NetworkInterface*> BestThatFit(
    const std::vector<NetworkInterface>& interfaces,
    const InterfaceChoice& choice) {
  std::vector<const NetworkInterface*> fit;
  Grade best = Grade::kLoopback;
  for (const NetworkInterface& interface : interfaces) {
    if (!Objection(interface, choice).empty()) continue;
    fit.push_back(&interface);
    best = std::min(best, GradeOf(interface));
  }
  if (!NameFilter(choice.names).selects()) {
    std::erase_if(fit, [best](const NetworkInterface* interface) {
      return GradeOf(*interface) != best;
    });
  }
  return fit;
}

absl::Status NoneLeft(const std::vector<NetworkInterface>& interfaces,
                      const InterfaceChoice& choice) {
  std::vector<std::string> candidates;
  for (const NetworkInterface& interface : interfaces) {
    candidates.push_back(
        absl::StrCat(interface.name, " (", Objection(interface, choice), ")"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "no network interface to listen on: TRNCCL_SOCKET_IFNAME='", choice.names,
      "' leaves none of ",
      candidates.empty() ? "no interfaces" : absl::StrJoin(candidates, ", "),
      "; change TRNCCL_SOCKET_IFNAME or TRNCCL_SOCKET_FAMILY"));
}

}  // namespace

absl::StatusOr<std::vector<NetworkInterface>> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    return SystemError(errno, "listing network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list,
                                                               &freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    auto interface = std::find_if(
        interfaces.begin(), interfaces.end(),
        [entry](const auto& known) { return known.name == entry->ifa_name; });
    if (interface == interfaces.end()) {
      interface =
          interfaces.insert(interfaces.end(), {entry->ifa_name, {}, {}});
    }
    const unsigned up = IFF_UP | IFF_RUNNING;
    if ((entry->ifa_flags & up) == up) {
      interface->state = NetworkInterface::State::kUp;
    }
    if (entry->ifa_addr == nullptr) continue;
    if (const auto address = SocketAddress::FromSockaddr(entry->ifa_addr)) {
      interface->addresses.push_back(*address);
    }
  }
  return interfaces;
}

absl::StatusOr<std::vector<SocketAddress>> ChooseAddresses(
    const std::vector<NetworkInterface>& interfaces,
    const InterfaceChoice& choice) {
  const auto fit = BestThatFit(interfaces, choice);
  if (fit.empty()) return NoneLeft(interfaces, choice);
  std::vector<SocketAddress> addresses;
  for (const NetworkInterface* interface : fit) {
    for (const auto& address : UsableAddresses(*interface, choice.family)) {
      addresses.push_back(address);
    }
  }
  std::stable_sort(addresses.begin(), addresses.end(),
                   [](const SocketAddress& a, const SocketAddress& b) {
                     return Preference(a) < Preference(b);
                   });
  if (!addresses[0].IsLinkLocal()) {
    std::erase_if(addresses,
                  [](const SocketAddress& a) { return a.IsLinkLocal(); });
  }
  return FirstThatFit(addresses);
}

absl::StatusOr<std::vector<SocketAddress>> WithScopes(
    const std::vector<SocketAddress>& addresses,
    const InterfaceChoice& choice) {
  std::vector<SocketAddress> scoped;
  for (const SocketAddress& address : addresses) {
    if (!address.IsLinkLocal() || address.scope_id != 0) {
      scoped.push_back(address);
      continue;
    }
    ASSIGN_OR_RETURN(const auto interfaces, ListInterfaces());
    for (const NetworkInterface* interface : BestThatFit(interfaces, choice)) {
      const auto own =
          std::find_if(interface->addresses.begin(), interface->addresses.end(),
                       [](const SocketAddress& a) { return a.IsLinkLocal(); });
      if (own == interface->addresses.end()) continue;
      scoped.push_back(address);
      scoped.back().scope_id = own->scope_id;
    }
  }
  return scoped;
}

}  // namespace trnccl
