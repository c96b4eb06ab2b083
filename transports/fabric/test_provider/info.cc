// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/info.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "transports/fabric/test_provider/breach.h"
#include "transports/fabric/test_provider/fork_guard.h"
#include "transports/fabric/test_provider/nic.h"

namespace trnccl::manners {
namespace {

// Newer versions of libfabric append to these structures.
constexpr size_t kAppended = 256;

constexpr uint64_t kTransmitCaps = FI_SEND | FI_READ | FI_WRITE;
constexpr uint64_t kReceiveCaps =
    FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SOURCE | FI_DIRECTED_RECV;
constexpr uint64_t kKinds = FI_MSG | FI_TAGGED | FI_RMA | FI_HMEM;
constexpr uint64_t kDomainCaps = FI_LOCAL_COMM | FI_REMOTE_COMM;
constexpr uint64_t kOpFlags = FI_COMPLETION | FI_INJECT_COMPLETE |
                              FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
constexpr size_t kMaxRmaBytes = size_t{1} << 30;

// Freed by fi_freeinfo(), with free().
template <typename Type>
Type* Allocate() {
  return static_cast<Type*>(std::calloc(1, sizeof(Type) + kAppended));
}

fi_info* AllocateInfo() {
  auto* info = Allocate<fi_info>();
  info->tx_attr = Allocate<fi_tx_attr>();
  info->rx_attr = Allocate<fi_rx_attr>();
  info->ep_attr = Allocate<fi_ep_attr>();
  info->domain_attr = Allocate<fi_domain_attr>();
  info->fabric_attr = Allocate<fi_fabric_attr>();
  return info;
}

uint64_t Caps(Flavour flavour) {
  const uint64_t both = FI_MSG | FI_RMA | FI_HMEM | kTransmitCaps | FI_RECV |
                        FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SOURCE |
                        kDomainCaps;
  return flavour == Flavour::kEfa ? both | FI_TAGGED | FI_DIRECTED_RECV : both;
}

void FillQueues(const Settings& settings, Flavour flavour, fi_info* info) {
  const uint64_t order =
      flavour == Flavour::kEfa ? FI_ORDER_SAS : FI_ORDER_NONE;
  info->tx_attr->caps = info->caps & (kKinds | kTransmitCaps);
  info->tx_attr->mode = info->mode;
  info->tx_attr->msg_order = order;
  info->tx_attr->inject_size = settings.inject_bytes;
  info->tx_attr->size = settings.transmits;
  info->tx_attr->iov_limit = settings.segments;
  info->tx_attr->rma_iov_limit = 1;
  info->rx_attr->caps = info->caps & (kKinds | kReceiveCaps);
  info->rx_attr->mode = info->mode;
  info->rx_attr->msg_order = order;
  info->rx_attr->size = settings.receives;
  info->rx_attr->iov_limit = settings.segments;
}

void FillDomain(Flavour flavour, fi_domain_attr* domain) {
  domain->threading = FI_THREAD_SAFE;
  domain->control_progress = FI_PROGRESS_MANUAL;
  domain->data_progress = FI_PROGRESS_MANUAL;
  domain->resource_mgmt = FI_RM_ENABLED;
  domain->av_type = FI_AV_TABLE;
  domain->mr_mode = FI_MR_LOCAL | FI_MR_HMEM | FI_MR_VIRT_ADDR |
                    FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  if (flavour == Flavour::kEfaDirect) domain->mr_mode |= FI_MR_ENDPOINT;
  domain->mr_key_size = sizeof(uint32_t);
  domain->cq_data_size = sizeof(uint32_t);
  domain->cq_cnt = 1024;
  domain->ep_cnt = 1024;
  domain->tx_ctx_cnt = 1;
  domain->rx_ctx_cnt = 1;
  domain->max_ep_tx_ctx = 1;
  domain->max_ep_rx_ctx = 1;
  domain->mr_iov_limit = 1;
  domain->mr_cnt = 65536;
  domain->caps = kDomainCaps;
}

fi_info* Offer(const Settings& settings, Flavour flavour, size_t nic) {
  fi_info* info = AllocateInfo();
  info->caps = Caps(flavour);
  info->mode = flavour == Flavour::kEfaDirect ? FI_CONTEXT2 : 0;
  info->addr_format = FI_ADDR_EFA;
  FillQueues(settings, flavour, info);
  FillDomain(flavour, info->domain_attr);
  info->ep_attr->type = FI_EP_RDM;
  info->ep_attr->protocol = FI_PROTO_EFA;
  info->ep_attr->protocol_version = 4;
  info->ep_attr->max_msg_size =
      flavour == Flavour::kEfa ? SIZE_MAX : kMaxRmaBytes;
  info->ep_attr->mem_tag_format = flavour == Flavour::kEfa ? UINT64_MAX : 0;
  info->ep_attr->tx_ctx_cnt = 1;
  info->ep_attr->rx_ctx_cnt = 1;
  info->domain_attr->name = strdup(DomainName(nic).c_str());
  info->fabric_attr->name = strdup(NameOf(flavour));
  info->fabric_attr->prov_version = FI_VERSION(1, 0);
  info->nic = NewNic(settings, nic);
  return info;
}

// An order, flags or caps that are asked for, and all must be offered.
bool Within(uint64_t asked, uint64_t offered) {
  return (asked & ~offered) == 0;
}

bool SameName(const char* asked, const char* offered) {
  return asked == nullptr || std::strcmp(asked, offered) == 0;
}

bool QueuesSuit(const fi_info& hints, const fi_info& offer) {
  if (const fi_tx_attr* tx = hints.tx_attr; tx != nullptr) {
    if (!Within(tx->caps, offer.caps) || !Within(tx->op_flags, kOpFlags) ||
        !Within(tx->msg_order, offer.tx_attr->msg_order) ||
        tx->inject_size > offer.tx_attr->inject_size ||
        tx->size > offer.tx_attr->size ||
        tx->iov_limit > offer.tx_attr->iov_limit ||
        tx->rma_iov_limit > offer.tx_attr->rma_iov_limit)
      return false;
  }
  const fi_rx_attr* rx = hints.rx_attr;
  return rx == nullptr ||
         (Within(rx->caps, offer.caps) && Within(rx->op_flags, kOpFlags) &&
          Within(rx->msg_order, offer.rx_attr->msg_order) &&
          rx->size <= offer.rx_attr->size &&
          rx->iov_limit <= offer.rx_attr->iov_limit);
}

bool DomainSuits(const fi_domain_attr& hints, const fi_info& offer) {
  return SameName(hints.name, offer.domain_attr->name) &&
         hints.control_progress != FI_PROGRESS_AUTO &&
         hints.data_progress != FI_PROGRESS_AUTO &&
         hints.cq_data_size <= offer.domain_attr->cq_data_size &&
         Within(hints.caps, offer.domain_attr->caps) &&
         Within(static_cast<uint64_t>(offer.domain_attr->mr_mode),
                static_cast<uint64_t>(hints.mr_mode));
}

bool EndpointSuits(const fi_ep_attr& hints, const fi_info& offer) {
  return (hints.type == FI_EP_UNSPEC || hints.type == FI_EP_RDM) &&
         (hints.protocol == FI_PROTO_UNSPEC ||
          hints.protocol == FI_PROTO_EFA) &&
         hints.max_msg_size <= offer.ep_attr->max_msg_size &&
         hints.tx_ctx_cnt <= 1 && hints.rx_ctx_cnt <= 1;
}

// What the caller didn't ask for, he doesn't get: neither capabilities nor
// order, as with EFA.
void Narrow(const fi_info& hints, const Settings& settings, fi_info* offer) {
  if (hints.caps != 0) {
    uint64_t caps = hints.caps;
    if ((caps & (FI_SEND | FI_RECV)) == 0 && (caps & (FI_MSG | FI_TAGGED)) != 0)
      caps |= FI_SEND | FI_RECV;
    constexpr uint64_t kAccess =
        FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if ((caps & FI_RMA) != 0 && (caps & kAccess) == 0) caps |= kAccess;
    if ((caps & kDomainCaps) == 0) caps |= kDomainCaps;
    offer->caps = caps;
    offer->tx_attr->caps &= caps;
    offer->rx_attr->caps &= caps;
  }
  if ((offer->caps & FI_HMEM) == 0) offer->domain_attr->mr_mode &= ~FI_MR_HMEM;
  const bool direct =
      std::strcmp(offer->fabric_attr->name, NameOf(Flavour::kEfaDirect)) == 0;
  if (direct && (offer->caps & FI_RMA) == 0)
    offer->ep_attr->max_msg_size = settings.message_bytes;
  if (hints.tx_attr != nullptr) {
    offer->tx_attr->msg_order &= hints.tx_attr->msg_order;
    offer->tx_attr->op_flags = hints.tx_attr->op_flags;
  }
  if (hints.rx_attr != nullptr) {
    offer->rx_attr->msg_order &= hints.rx_attr->msg_order;
    offer->rx_attr->op_flags = hints.rx_attr->op_flags;
  }
}

// Whether the hints can live with the offer, which becomes what they ask for.
bool Negotiate(const fi_info& hints, const Settings& settings, fi_info* offer) {
  const bool suits =
      Within(hints.caps, offer->caps) && Within(offer->mode, hints.mode) &&
      (hints.addr_format == FI_FORMAT_UNSPEC ||
       hints.addr_format == FI_ADDR_EFA) &&
      QueuesSuit(hints, *offer) &&
      (hints.fabric_attr == nullptr ||
       SameName(hints.fabric_attr->name, offer->fabric_attr->name));
  if (!suits) return false;
  Narrow(hints, settings, offer);
  return (hints.ep_attr == nullptr || EndpointSuits(*hints.ep_attr, *offer)) &&
         (hints.domain_attr == nullptr ||
          DomainSuits(*hints.domain_attr, *offer));
}

// Of this process, anew when MANNERS_FAIL changes.
bool Strikes(const Settings& settings) {
  static std::string text;
  static FaultPlan faults;
  if (settings.fail != text) {
    text = settings.fail;
    faults = settings.faults;
  }
  return faults.Strikes(Fault::kGetinfo);
}

}  // namespace

std::string DomainName(size_t nic) { return NicName(nic) + "-rdm"; }

int Offers(const fi_info* hints, fi_info** info) {
  std::lock_guard<std::mutex> lock(ProviderMutex());
  const Settings settings = ReadSettings();
  if (Strikes(settings)) return -FI_ENODATA;
  fi_info** next = info;
  *info = nullptr;
  for (Flavour flavour : settings.fabrics) {
    for (size_t nic = 0; nic < settings.nics; ++nic) {
      fi_info* offer = Offer(settings, flavour, nic);
      if (hints != nullptr && !Negotiate(*hints, settings, offer)) {
        fi_freeinfo(offer);
        continue;
      }
      *next = offer;
      next = &offer->next;
    }
  }
  return *info == nullptr ? -FI_ENODATA : 0;
}

}  // namespace trnccl::manners
