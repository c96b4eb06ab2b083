// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/endpoint.h"

#include <rdma/fi_cm.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "transports/fabric/test_provider/breach.h"
#include "transports/fabric/test_provider/fork_guard.h"

namespace trnccl::manners {
namespace {

// Options that headers before libfabric 2.x don't have.
constexpr int kSharedMemoryPermitted = 11;
constexpr int kMaxMessageBytes = 12;
constexpr int kInjectMessageBytes = 16;
constexpr int kInjectRmaBytes = 18;
constexpr int kEfaEmulatedRead = -(0xefa << 16) + 1;
constexpr int kEfaEmulatedWrite = -(0xefa << 16) + 2;

Endpoint* EpOf(fid* object) { return ObjectOf<Endpoint, fid_ep>(object); }

int GetName(const Endpoint& endpoint, void* address, size_t* bytes) {
  if (!endpoint.enabled) return -FI_EOPBADSTATE;
  if (endpoint.domain->fabric->faults.Strikes(Fault::kGetname))
    return -FI_EADDRNOTAVAIL;
  const size_t room = *bytes;
  *bytes = sizeof(Address);
  std::memcpy(address, &endpoint.address, std::min(room, sizeof(Address)));
  return room < sizeof(Address) ? -FI_ETOOSMALL : 0;
}

template <typename Value>
int Give(Value value, void* to, size_t* bytes) {
  if (*bytes < sizeof(value)) return -FI_ETOOSMALL;
  std::memcpy(to, &value, sizeof(value));
  *bytes = sizeof(value);
  return 0;
}

int GetOption(const Endpoint& endpoint, int option, void* value,
              size_t* bytes) {
  const Settings& settings = endpoint.domain->fabric->settings;
  switch (option) {
    case kMaxMessageBytes:
      return Give(endpoint.domain->fabric->flavour == Flavour::kEfa
                      ? SIZE_MAX
                      : settings.message_bytes,
                  value, bytes);
    case kInjectMessageBytes:
    case kInjectRmaBytes:
      return Give(settings.inject_bytes, value, bytes);
    case kEfaEmulatedRead:
      return Give(false, value, bytes);
    case kEfaEmulatedWrite:
      return Give(settings.emulated_write != 0, value, bytes);
    default:
      return -FI_ENOPROTOOPT;
  }
}

int SetOption(const Endpoint& endpoint, int option, const void* value) {
  if (option == kSharedMemoryPermitted)
    return endpoint.enabled ? -FI_EOPBADSTATE : 0;
  if (option != FI_OPT_FI_HMEM_P2P) return -FI_ENOPROTOOPT;
  int p2p = 0;
  std::memcpy(&p2p, value, sizeof(p2p));
  // Device memory can't be reached in any other way.
  return p2p == FI_HMEM_P2P_DISABLED ? -FI_EOPNOTSUPP : 0;
}

fi_ops kObject = {
    .size = sizeof(fi_ops),
    .close = [](fid* object) -> int {
      Endpoint* endpoint = EpOf(object);
      return Guarded(endpoint->domain->fabric->generation,
                     [&] { return endpoint->Close(); });
    },
    .bind = [](fid* object, fid* to, uint64_t flags) -> int {
      Endpoint* endpoint = EpOf(object);
      return Guarded(endpoint->domain->fabric->generation,
                     [&] { return endpoint->Bind(to, flags); });
    },
    .control = [](fid* object, int command, void*) -> int {
      if (command != FI_ENABLE) return -FI_ENOSYS;
      Endpoint* endpoint = EpOf(object);
      return Guarded(endpoint->domain->fabric->generation,
                     [&] { return endpoint->Enable(); });
    },
    .ops_open = Unsupported,
};

fi_ops_ep kEndpointCalls = {
    .size = sizeof(fi_ops_ep),
    .cancel = [](fid* object, void* context) -> ssize_t {
      Endpoint* endpoint = EpOf(object);
      return Guarded(endpoint->domain->fabric->generation,
                     [&] { return endpoint->Cancel(context); });
    },
    .getopt = [](fid* object, int, int option, void* value,
                 size_t* bytes) -> int {
      Endpoint* endpoint = EpOf(object);
      return Guarded(endpoint->domain->fabric->generation, [&] {
        return GetOption(*endpoint, option, value, bytes);
      });
    },
    .setopt = [](fid* object, int, int option, const void* value,
                 size_t) -> int {
      Endpoint* endpoint = EpOf(object);
      return Guarded(endpoint->domain->fabric->generation,
                     [&] { return SetOption(*endpoint, option, value); });
    },
    .tx_ctx = Unsupported,
    .rx_ctx = Unsupported,
    .rx_size_left = Unsupported,
    .tx_size_left = Unsupported,
};

fi_ops_cm kNameCalls = {
    .size = sizeof(fi_ops_cm),
    .setname = Unsupported,
    .getname = [](fid* object, void* address, size_t* bytes) -> int {
      Endpoint* endpoint = EpOf(object);
      return Guarded(endpoint->domain->fabric->generation,
                     [&] { return GetName(*endpoint, address, bytes); });
    },
    .getpeer = Unsupported,
    .connect = Unsupported,
    .listen = Unsupported,
    .accept = Unsupported,
    .reject = Unsupported,
    .shutdown = Unsupported,
    .join = Unsupported,
};

Address NewAddress(const Domain& domain) {
  static uint32_t endpoints = 0;
  Address address = {.magic = kAddressMagic,
                     .process = static_cast<uint32_t>(getpid()),
                     .endpoint = ++endpoints,
                     .nic = domain.nic,
                     .flavour = domain.fabric->flavour};
  if (getrandom(&address.nonce, sizeof(address.nonce), 0) !=
      sizeof(address.nonce))
    Breach("getrandom failed");
  return address;
}

}  // namespace

int Endpoint::Bind(fid_t object, uint64_t flags) {
  if (domain->fabric->faults.Strikes(Fault::kBind)) return -FI_EINVAL;
  if (enabled) return -FI_EOPBADSTATE;
  if (object->fclass == FI_CLASS_AV) {
    if (av != nullptr) return -FI_EINVAL;
    av = ObjectOf<AddressVector, fid_av>(object);
    ++av->endpoints;
    return 0;
  }
  if (object->fclass != FI_CLASS_CQ) return -FI_ENOSYS;
  auto* cq = ObjectOf<CompletionQueue, fid_cq>(object);
  const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
  if ((flags & FI_TRANSMIT) != 0) {
    if (tx_cq != nullptr) return -FI_EINVAL;
    tx_cq = cq;
    selective_tx = selective;
    ++cq->endpoints;
  }
  if ((flags & FI_RECV) != 0) {
    if (rx_cq != nullptr) return -FI_EINVAL;
    rx_cq = cq;
    selective_rx = selective;
    ++cq->endpoints;
  }
  return 0;
}

int Endpoint::Enable() {
  if (domain->fabric->faults.Strikes(Fault::kEnable)) return -FI_ENOMEM;
  if (enabled) return -FI_EOPBADSTATE;
  if (av == nullptr) return -FI_ENOAV;
  if (tx_cq == nullptr || rx_cq == nullptr) return -FI_ENOCQ;
  address = NewAddress(*domain);
  const int error = links.Open(address);
  if (error != 0) return error;
  tx_cq->Bind(this);
  rx_cq->Bind(this);
  domain->endpoints.insert(address);
  enabled = true;
  return 0;
}

int Endpoint::Close() {
  ContextTable& contexts = domain->fabric->contexts;
  for (const auto& [id, operation] : outstanding)
    contexts.Forget(operation.context);
  for (const PostedReceive& receive : receives)
    contexts.Forget(receive.context);
  for (CompletionQueue* cq : {tx_cq, rx_cq}) {
    if (cq == nullptr) continue;
    cq->Unbind(this);
    --cq->endpoints;
  }
  if (av != nullptr) --av->endpoints;
  domain->endpoints.erase(address);
  --domain->users;
  delete this;
  return 0;
}

ssize_t Endpoint::Cancel(void* context) {
  if (domain->fabric->flavour == Flavour::kEfaDirect) return -FI_ENOSYS;
  const auto found = std::find_if(
      receives.begin(), receives.end(),
      [&](const PostedReceive& receive) { return receive.context == context; });
  if (found == receives.end()) return -FI_ENOENT;
  const uint64_t kind = found->kind == Kind::kTagged ? FI_TAGGED : FI_MSG;
  receives.erase(found);
  rx_cq->Push({.context = context,
               .flags = FI_RECV | kind,
               .error = FI_ECANCELED,
               .outcome = Outcome::kCanceled});
  rx_cq->UpdateSignal();
  return 0;
}

int OpenEndpoint(Domain& domain, const fi_info& info, fid_ep** endpoint,
                 void* context) {
  if (domain.fabric->faults.Strikes(Fault::kEndpoint)) return -FI_EINVAL;
  if (info.ep_attr->type != FI_EP_RDM) return -FI_EINVAL;
  auto* object = new Endpoint;
  object->fid = {.fclass = FI_CLASS_EP, .context = context, .ops = &kObject};
  object->ops = &kEndpointCalls;
  object->cm = &kNameCalls;
  object->msg = &kMessageCalls;
  object->rma = &kRmaCalls;
  object->tagged = &kTaggedCalls;
  object->atomic = nullptr;
  object->collective = nullptr;
  object->domain = &domain;
  object->caps = info.caps;
  object->ordered =
      (info.tx_attr->msg_order & info.rx_attr->msg_order & FI_ORDER_SAS) != 0;
  object->tx_flags = info.tx_attr->op_flags;
  object->rx_flags = info.rx_attr->op_flags;
  ++domain.users;
  *endpoint = object;
  return 0;
}

}  // namespace trnccl::manners
