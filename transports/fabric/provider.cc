// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/provider.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <climits>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ccl/base/status_macros.h"
#include "transports/fabric/wire.h"

namespace trnccl::fabric {
namespace {

constexpr uint32_t kApiVersion = FI_VERSION(1, 17);

// Best first. TCP's own datagram endpoint was "net" before release 1.18 and is
// "tcp" since: several times faster than ofi_rxm over TCP.
constexpr std::array<std::string_view, 10> kPreference = {
    "efa", "cxi", "opx",         "psm3",       "verbs;ofi_rxm",
    "net", "tcp", "tcp;ofi_rxm", "udp;ofi_rxd"};

constexpr uint64_t kTaggedCaps = FI_MSG | FI_TAGGED;
constexpr uint64_t kWriteCaps = FI_MSG | FI_RMA;
constexpr int kMemoryModes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
                             FI_MR_PROV_KEY | FI_MR_ENDPOINT | FI_MR_HMEM;

// Above these a short message is worth the receiver's word first: one copy
// more costs about as much as a message more.
constexpr size_t kEagerBytes = size_t{64} << 10;
constexpr size_t kAdapterEagerBytes = size_t{8} << 10;

size_t Preference(std::string_view name) {
  return static_cast<size_t>(std::ranges::find(kPreference, name) -
                             kPreference.begin());
}

Info Hints(const FabricLibrary& library, const PortOptions& options,
           uint64_t caps) {
  Info hints(library.dupinfo(nullptr), {&library});
  if (hints == nullptr) return hints;
  hints->caps = caps;
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
  switch (options.family) {
    case AddressFamily::kAny:
      break;
    case AddressFamily::kIpv4:
      hints->addr_format = FI_SOCKADDR_IN;
      break;
    case AddressFamily::kIpv6:
      hints->addr_format = FI_SOCKADDR_IN6;
      break;
  }
  return hints;
}

struct Offers {
  Info list;  // as fi_getinfo gives it
  std::vector<fi_info*> fitting;
};

std::string_view NameOf(const fi_info& info) {
  return info.fabric_attr->prov_name;
}

Offers Ask(const FabricLibrary& library, const PortOptions& options,
           uint64_t caps) {
  const Info hints = Hints(library, options, caps);
  fi_info* found = nullptr;
  if (hints == nullptr || library.getinfo(kApiVersion, nullptr, nullptr, 0,
                                          hints.get(), &found) != 0)
    return {Info(nullptr, {&library}), {}};
  Offers offers{Info(found, {&library}), {}};
  for (fi_info* info = found; info != nullptr; info = info->next) {
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

// The place of its adapter in the caller's list.
size_t AdapterPlace(const fi_info& info, const PortOptions& options) {
  const auto place =
      std::ranges::find(options.adapters, info.domain_attr->name);
  return static_cast<size_t>(place - options.adapters.begin());
}

// The offers of the best provider for the protocol, one an adapter, by the
// caller's preference and then as libfabric lists them.
std::vector<fi_info*> BestAdapters(const Offers& offers,
                                   const PortOptions& options) {
  std::vector<fi_info*> fitting;
  for (fi_info* info : offers.fitting) {
    const bool wanted = options.adapters.empty() ||
                        AdapterPlace(*info, options) < options.adapters.size();
    if (wanted) fitting.push_back(info);
  }
  if (fitting.empty()) return fitting;
  const fi_info* best = *std::ranges::min_element(
      fitting, {}, [](const fi_info* i) { return Preference(NameOf(*i)); });
  std::stable_sort(
      fitting.begin(), fitting.end(), [&](const fi_info* a, const fi_info* b) {
        return AdapterPlace(*a, options) < AdapterPlace(*b, options);
      });
  std::vector<fi_info*> chosen;
  std::set<std::string_view> adapters;
  for (fi_info* info : fitting) {
    if (NameOf(*info) == NameOf(*best) &&
        adapters.insert(info->domain_attr->name).second)
      chosen.push_back(info);
  }
  return chosen;
}

absl::Status NothingFits(const FabricLibrary& library,
                         const PortOptions& options) {
  PortOptions any = options;
  any.provider.clear();
  any.family = AddressFamily::kAny;
  std::set<std::string> there;
  for (const fi_info* info : Ask(library, any, FI_MSG).fitting)
    there.insert(absl::StrCat(info->fabric_attr->prov_name, " on ",
                              info->domain_attr->name));
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
      ". TRNCCL_FABRIC_PROVIDER and TRNCCL_SOCKET_IFNAME choose"));
}

size_t EagerBytes(const fi_info& info, const PortOptions& options) {
  size_t bytes = options.eager_bytes;
  if (bytes == 0)
    bytes = PrefersWrites(info) ? kAdapterEagerBytes : kEagerBytes;
  return std::min(bytes, info.ep_attr->max_msg_size - sizeof(WireHeader));
}

}  // namespace

absl::StatusOr<Provider> ChooseProvider(const FabricLibrary& library,
                                        const PortOptions& options) {
  Offers tagged = Ask(library, options, kTaggedCaps);
  Offers write = Ask(library, options, kWriteCaps);
  std::vector<fi_info*> by_tag = BestAdapters(tagged, options);
  std::vector<fi_info*> by_write = BestAdapters(write, options);
  bool writes = options.protocol == FabricProtocol::kWrite;
  if (options.protocol == FabricProtocol::kAuto) {
    writes = !by_write.empty() &&
             (by_tag.empty() || PrefersWrites(*by_write.front()));
  }
  std::vector<fi_info*>& chosen = writes ? by_write : by_tag;
  if (chosen.empty()) return NothingFits(library, options);
  chosen.resize(std::min({chosen.size(), kMaxRails,
                          static_cast<size_t>(std::max(options.rails, 1))}));
  const fi_info& first = *chosen.front();
  const int mr_mode = first.domain_attr->mr_mode;
  Provider provider{.name = std::string(NameOf(first)),
                    .writes = writes,
                    .registers = (mr_mode & FI_MR_LOCAL) != 0,
                    .virtual_keys = (mr_mode & FI_MR_VIRT_ADDR) != 0,
                    .provides_keys = (mr_mode & FI_MR_PROV_KEY) != 0,
                    .binds_memory = (mr_mode & FI_MR_ENDPOINT) != 0,
                    .eager_bytes = EagerBytes(first, options)};
  for (const fi_info* info : chosen)
    provider.rails.emplace_back(library.dupinfo(info), InfoDeleter{&library});
  return provider;
}

}  // namespace trnccl::fabric
