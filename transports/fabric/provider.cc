// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/provider.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <climits>
#include <fstream>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ccl/base/status_macros.h"
#include "transports/fabric/newer.h"
#include "transports/fabric/wire.h"

namespace trnccl::fabric {
namespace {

// What fi_getinfo() is asked by. Devices' memory needs what came later; without
// it, nothing that was written for one release meets the rules of another.
uint32_t ApiVersion(const FabricLibrary& library, const PortOptions& options) {
  return options.device_memory && library.AtLeast(kDmabufMajor, kDmabufMinor)
             ? FI_VERSION(kDmabufMajor, kDmabufMinor)
             : FI_VERSION(1, 17);
}

// Best first. TCP's own datagram endpoint was "net" before release 1.18 and is
// "tcp" since: several times faster than ofi_rxm over TCP.
constexpr std::array<std::string_view, 9> kPreference = {
    "efa", "cxi", "opx",         "psm3",       "verbs;ofi_rxm",
    "net", "tcp", "tcp;ofi_rxm", "udp;ofi_rxd"};

constexpr uint64_t kTaggedCaps = FI_MSG | FI_TAGGED;
constexpr uint64_t kWriteCaps = FI_MSG | FI_RMA;
constexpr int kMemoryModes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
                             FI_MR_PROV_KEY | FI_MR_ENDPOINT | FI_MR_HMEM;

constexpr size_t kSliceBytes = size_t{512} << 10;
constexpr size_t kPacedSliceBytes = size_t{64} << 10;

// Above these a short message is worth the receiver's word first: one copy
// more costs about as much as a message more.
constexpr size_t kEagerBytes = size_t{128} << 10;
constexpr size_t kAdapterEagerBytes = size_t{8} << 10;

size_t Preference(std::string_view name) {
  return static_cast<size_t>(std::ranges::find(kPreference, name) -
                             kPreference.begin());
}

Info Hints(const FabricLibrary& library, const PortOptions& options,
           uint64_t caps) {
  Info hints(library.dupinfo(nullptr), {&library});
  if (hints == nullptr) return hints;
  hints->caps = caps | (options.device_memory ? FI_HMEM : 0);
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = kMemoryModes;
  // The port's lock is the only one needed, and whoever waits makes progress.
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->av_type = FI_AV_TABLE;
  if (!options.provider.empty())
    hints->fabric_attr->prov_name = strdup(options.provider.c_str());
  return hints;
}

struct Offers {
  Info list;  // as fi_getinfo gives it
  std::vector<fi_info*> fitting;
};

std::string_view NameOf(const fi_info& info) {
  return info.fabric_attr->prov_name;
}

// Nodes are told apart by name: whether two share a machine, and what of it, a
// provider that can't leave it doesn't find out, and waits for ever. (What it
// says of itself doesn't tell: its flags have neither local nor remote.)
bool StaysWithinMachine(const fi_info& info) {
  return NameOf(info).substr(0, 3) == "shm";
}

// Peers of such an address don't learn its scope, so it leads nowhere.
bool IsLinkLocal(const fi_info& info) {
  if (info.addr_format != FI_SOCKADDR_IN6 || info.src_addr == nullptr)
    return false;
  const auto* address = static_cast<const sockaddr_in6*>(info.src_addr);
  return IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr);
}

Offers Ask(const FabricLibrary& library, const PortOptions& options,
           uint64_t caps) {
  const Info hints = Hints(library, options, caps);
  fi_info* found = nullptr;
  if (hints == nullptr || library.getinfo(ApiVersion(library, options), nullptr,
                                          nullptr, 0, hints.get(), &found) != 0)
    return {Info(nullptr, {&library}), {}};
  Offers offers{Info(found, {&library}), {}};
  for (fi_info* info = found; info != nullptr; info = info->next) {
    if (IsLinkLocal(*info) ||
        (StaysWithinMachine(*info) && !options.within_machine))
      continue;
    const bool known = Preference(NameOf(*info)) < kPreference.size();
    if (known || NameOf(*info) == options.provider)
      offers.fitting.push_back(info);
  }
  return offers;
}

// Adapters that do remote writes themselves say so by how they want memory to
// be registered.
bool PrefersWrites(const fi_info& info) {
  return (info.caps & FI_RMA) != 0 &&
         (info.domain_attr->mr_mode & FI_MR_ALLOCATED) != 0;
}

// Its own IP address as text; "" if it has none.
std::string IpOf(const fi_info& info) {
  const auto* any = static_cast<const sockaddr*>(info.src_addr);
  const bool ip = info.addr_format == FI_SOCKADDR ||
                  info.addr_format == FI_SOCKADDR_IN ||
                  info.addr_format == FI_SOCKADDR_IN6;
  if (!ip || any == nullptr) return "";
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const void* address = nullptr;
  if (any->sa_family == AF_INET)
    address = &reinterpret_cast<const sockaddr_in*>(any)->sin_addr;
  if (any->sa_family == AF_INET6)
    address = &reinterpret_cast<const sockaddr_in6*>(any)->sin6_addr;
  if (address == nullptr) return "";
  return inet_ntop(any->sa_family, address, text.data(), text.size());
}

// Where its adapter is on the PCI bus; "" if it's not on it.
std::string PciOf(const fi_info& info) {
  if (info.nic == nullptr || info.nic->bus_attr == nullptr ||
      info.nic->bus_attr->bus_type != FI_BUS_PCI)
    return "";
  const fi_pci_attr& at = info.nic->bus_attr->attr.pci;
  return absl::StrFormat("%04x:%02x:%02x.%x", at.domain_id, at.bus_id,
                         at.device_id, at.function_id);
}

size_t PlaceIn(const std::vector<std::string>& list, std::string_view text) {
  return static_cast<size_t>(std::ranges::find(list, text) - list.begin());
}

// How well an offer suits the caller; less is better.
struct Rank {
  size_t adapter = 0;
  size_t address = 0;
  size_t pci = 0;

  auto operator<=>(const Rank&) const = default;
};

Rank RankOf(const fi_info& info, const PortOptions& options) {
  Rank rank{.adapter = PlaceIn(options.adapters, info.domain_attr->name),
            .pci = PlaceIn(options.pci, PciOf(info))};
  const std::string ip = IpOf(info);
  if (ip.empty()) return rank;
  rank.address = PlaceIn(options.addresses, ip);
  // Ranks reach each other only within a family.
  const auto is_ipv6 = [](const std::string& address) {
    return address.find(':') != address.npos;
  };
  if (rank.address == options.addresses.size() && !options.addresses.empty() &&
      is_ipv6(ip) != is_ipv6(options.addresses.front()))
    ++rank.address;
  return rank;
}

// Whether its address is one that the caller wants, or it has none.
bool HasWantedAddress(const fi_info& info, const PortOptions& options) {
  return IpOf(info).empty() ||
         RankOf(info, options).address < options.addresses.size();
}

// The offers of the best provider for the protocol, one an adapter, by the
// caller's preference and then as libfabric lists them. EFA lists the fabric
// efa-direct before efa, and it's the right one for writes: it's what the
// adapter does itself, without the copies and queues of efa's emulation, and
// what it lacks (order, messages longer than a packet) isn't needed here. It
// has no tagged messages, so that protocol finds efa.
std::vector<fi_info*> BestAdapters(const Offers& offers,
                                   const PortOptions& options) {
  std::vector<fi_info*> fitting = offers.fitting;
  if (!options.adapters.empty()) {
    std::erase_if(fitting, [&](const fi_info* info) {
      return RankOf(*info, options).adapter == options.adapters.size();
    });
  }
  if (fitting.empty()) return fitting;
  const std::string_view best = NameOf(**std::ranges::min_element(
      fitting, {}, [](const fi_info* i) { return Preference(NameOf(*i)); }));
  std::erase_if(fitting, [&](const fi_info* i) { return NameOf(*i) != best; });
  std::ranges::stable_sort(
      fitting, {}, [&](const fi_info* i) { return RankOf(*i, options); });
  const bool choosy =
      options.adapters.empty() && HasWantedAddress(*fitting.front(), options);
  std::vector<fi_info*> chosen;
  std::set<std::string_view> adapters;
  for (fi_info* info : fitting) {
    if (choosy && !HasWantedAddress(*info, options)) continue;
    if (adapters.insert(info->domain_attr->name).second) chosen.push_back(info);
  }
  return chosen;
}

// Of the adapters to choose from.
size_t RailsOf(const std::vector<fi_info*>& adapters,
               const PortOptions& options) {
  if (options.rails > 0) return static_cast<size_t>(options.rails);
  if (!IpOf(*adapters.front()).empty()) return 1;
  const auto sharers = static_cast<size_t>(std::max(options.sharers, 1));
  return std::max<size_t>(adapters.size() / sharers, 1);
}

absl::Status NothingFits(const FabricLibrary& library,
                         const PortOptions& options) {
  const std::vector<std::string> there = ListOffers(library, options);
  return absl::NotFoundError(absl::StrCat(
      "libfabric (", library.path, ") offers no ",
      options.provider.empty()
          ? std::string("provider")
          : absl::StrCat("provider \"", options.provider, "\""),
      options.adapters.empty()
          ? std::string()
          : absl::StrCat(" on ", absl::StrJoin(options.adapters, ", ")),
      " that can carry messages between nodes; there are: ",
      there.empty() ? "none" : absl::StrJoin(there, ", "),
      ". TRNCCL_FABRIC_PROVIDER and TRNCCL_FABRIC_ADAPTERS choose, among "
      "those that FI_PROVIDER allows"));
}

size_t EagerBytes(const fi_info& info, const PortOptions& options) {
  size_t bytes = options.eager_bytes;
  if (bytes == 0)
    bytes = PrefersWrites(info) ? kAdapterEagerBytes : kEagerBytes;
  return bytes;
}

bool Streams(std::string_view provider) {
  return provider.starts_with("tcp") || provider.starts_with("net");
}

std::string CongestionControl() {
  std::string name;
  std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> name;
  return name;
}

}  // namespace

// BBR paces a connection by the rate that it has seen, and over links that are
// faster than their round trips tell it then sees the pace that it set: long
// messages, one after the other, took up to three times as long, and not the
// same time twice. Short ones leave it no such stretch to measure. Elsewhere
// they cost more than long ones.
size_t SliceBytesOf(std::string_view provider,
                    std::string_view congestion_control) {
  return Streams(provider) && congestion_control.starts_with("bbr")
             ? kPacedSliceBytes
             : kSliceBytes;
}

std::vector<std::string> ListOffers(const FabricLibrary& library,
                                    const PortOptions& options) {
  PortOptions any = options;
  any.provider.clear();
  const Offers offers = Ask(library, any, FI_MSG);
  std::set<std::string> there;
  for (const fi_info* info : offers.fitting)
    there.insert(absl::StrCat(info->fabric_attr->prov_name, " on ",
                              info->domain_attr->name));
  return {there.begin(), there.end()};
}

absl::StatusOr<Provider> ChooseProvider(const FabricLibrary& library,
                                        const PortOptions& options) {
  Offers tagged = Ask(library, options, kTaggedCaps);
  Offers write = Ask(library, options, kWriteCaps);
  std::vector<fi_info*> by_tag = BestAdapters(tagged, options);
  std::vector<fi_info*> by_write = BestAdapters(write, options);
  bool writes =
      options.protocol == FabricProtocol::kWrite || options.device_memory;
  if (options.protocol == FabricProtocol::kAuto && !options.device_memory) {
    writes = !by_write.empty() &&
             (by_tag.empty() || PrefersWrites(*by_write.front()));
  }
  std::vector<fi_info*>& chosen = writes ? by_write : by_tag;
  if (chosen.empty()) return NothingFits(library, options);
  chosen.resize(std::min({chosen.size(), kMaxRails, RailsOf(chosen, options)}));
  const fi_info& first = *chosen.front();
  const int mr_mode = first.domain_attr->mr_mode;
  Provider provider{
      .name = std::string(NameOf(first)),
      .writes = writes,
      .registers = (mr_mode & FI_MR_LOCAL) != 0,
      .virtual_keys = (mr_mode & FI_MR_VIRT_ADDR) != 0,
      .provides_keys = (mr_mode & FI_MR_PROV_KEY) != 0,
      .binds_memory = (mr_mode & FI_MR_ENDPOINT) != 0,
      .resends = NameOf(first).find("ofi_rxd") != std::string_view::npos,
      .streams = Streams(NameOf(first)),
      .crosses = NameOf(first) == "net" || NameOf(first) == "tcp",
      .revokes = PrefersWrites(first),
      .reaches_devices = options.device_memory,
      .eager_bytes = EagerBytes(first, options),
      .slice_bytes = SliceBytesOf(NameOf(first), CongestionControl())};
  for (const fi_info* info : chosen)
    provider.rails.emplace_back(library.dupinfo(info), InfoDeleter{&library});
  return provider;
}

}  // namespace trnccl::fabric
