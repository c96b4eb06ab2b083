// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/fabric.h"

#include <rdma/fi_errno.h>

#include <cstring>

#include "transports/fabric/test_provider/address_vector.h"
#include "transports/fabric/test_provider/completion_queue.h"
#include "transports/fabric/test_provider/endpoint.h"
#include "transports/fabric/test_provider/fork_guard.h"
#include "transports/fabric/test_provider/info.h"
#include "transports/fabric/test_provider/region.h"

namespace trnccl::manners {
namespace {

int CloseDomain(Domain* domain) {
  if (domain->users > 0 || !domain->regions.empty()) return -FI_EBUSY;
  --domain->fabric->domains;
  delete domain;
  return 0;
}

fi_ops kDomainObject = {
    .size = sizeof(fi_ops),
    .close = [](fid* object) -> int {
      auto* domain = ObjectOf<Domain, fid_domain>(object);
      return Guarded(domain->fabric->generation,
                     [&] { return CloseDomain(domain); });
    },
    .bind = Unsupported,
    .control = Unsupported,
    .ops_open = Unsupported,
};

fi_ops_domain kDomainCalls = {
    .size = sizeof(fi_ops_domain),
    .av_open = [](fid_domain* domain, fi_av_attr* attr, fid_av** av,
                  void* context) -> int {
      return Guarded(DomainOf(domain)->fabric->generation, [&] {
        return OpenAddressVector(*DomainOf(domain), *attr, av, context);
      });
    },
    .cq_open = [](fid_domain* domain, fi_cq_attr* attr, fid_cq** cq,
                  void* context) -> int {
      return Guarded(DomainOf(domain)->fabric->generation, [&] {
        return OpenCompletionQueue(*DomainOf(domain), *attr, cq, context);
      });
    },
    .endpoint = [](fid_domain* domain, fi_info* info, fid_ep** endpoint,
                   void* context) -> int {
      return Guarded(DomainOf(domain)->fabric->generation, [&] {
        return OpenEndpoint(*DomainOf(domain), *info, endpoint, context);
      });
    },
    .scalable_ep = Unsupported,
    .cntr_open = Unsupported,
    .poll_open = Unsupported,
    .stx_ctx = Unsupported,
    .srx_ctx = Unsupported,
    .query_atomic = Unsupported,
    .query_collective = Unsupported,
};

int OpenDomain(Fabric& fabric, const fi_info& info, fid_domain** domain,
               void* context) {
  if (fabric.faults.Strikes(Fault::kDomain)) return -FI_ENODEV;
  for (size_t nic = 0; nic < fabric.settings.nics; ++nic) {
    if (info.domain_attr->name != DomainName(nic)) continue;
    auto* object = new Domain;
    object->fid = {
        .fclass = FI_CLASS_DOMAIN, .context = context, .ops = &kDomainObject};
    object->ops = &kDomainCalls;
    object->mr = &kRegistration;
    object->fabric = &fabric;
    object->nic = static_cast<uint32_t>(nic);
    object->caps = info.caps;
    object->mr_mode = info.domain_attr->mr_mode;
    ++fabric.domains;
    *domain = object;
    return 0;
  }
  return -FI_ENODEV;
}

// 0 if it's safe to sleep on the descriptors of these queues.
int TryWait(fid** objects, int count) {
  bool busy = false;
  for (int i = 0; i < count; ++i) {
    if (objects[i]->fclass != FI_CLASS_CQ) return -FI_EINVAL;
    auto* cq = ObjectOf<CompletionQueue, fid_cq>(objects[i]);
    cq->Progress();
    cq->UpdateSignal();
    busy = busy || cq->HasWork();
  }
  return busy ? -FI_EAGAIN : 0;
}

fi_ops kFabricObject = {
    .size = sizeof(fi_ops),
    .close = [](fid* object) -> int {
      auto* fabric = ObjectOf<Fabric, fid_fabric>(object);
      const int status = Guarded(fabric->generation, [&] {
        return fabric->domains > 0 ? -FI_EBUSY : 0;
      });
      if (status == 0) delete fabric;
      return status;
    },
    .bind = Unsupported,
    .control = Unsupported,
    .ops_open = Unsupported,
};

fi_ops_fabric kFabricCalls = {
    .size = sizeof(fi_ops_fabric),
    .domain = [](fid_fabric* fabric, fi_info* info, fid_domain** domain,
                 void* context) -> int {
      return Guarded(FabricOf(fabric)->generation, [&] {
        return OpenDomain(*FabricOf(fabric), *info, domain, context);
      });
    },
    .passive_ep = Unsupported,
    .eq_open = Unsupported,
    .wait_open = Unsupported,
    .trywait = [](fid_fabric* fabric, fid** objects, int count) -> int {
      return Guarded(FabricOf(fabric)->generation,
                     [&] { return TryWait(objects, count); });
    },
};

}  // namespace

int OpenFabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  std::lock_guard<std::mutex> lock(ProviderMutex());
  Settings settings = ReadSettings();
  for (Flavour flavour : settings.fabrics) {
    if (attr->name == nullptr || std::strcmp(attr->name, NameOf(flavour)) != 0)
      continue;
    auto* object = new Fabric;
    object->fid = {
        .fclass = FI_CLASS_FABRIC, .context = context, .ops = &kFabricObject};
    object->fid_fabric::ops = &kFabricCalls;
    object->api_version = attr->api_version;
    object->generation = ForkGeneration();
    object->flavour = flavour;
    object->faults = settings.faults;
    object->random.seed(settings.seed);
    object->settings = std::move(settings);
    if (object->faults.Strikes(Fault::kFabric)) {
      delete object;
      return -FI_ENODEV;
    }
    *fabric = object;
    return 0;
  }
  return -FI_ENODATA;
}

}  // namespace trnccl::manners
