// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A fabric and its domains: settings and faults as they were when the fabric
// was opened, the random numbers, the memory that's registered with a domain.
//
// Thread rule: under ProviderMutex() (fork_guard.h).
//
//   auto* fabric = FabricOf(fid);
//   if (fabric->faults.Strikes(Fault::kDomain)) return -FI_ENODEV;
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "transports/fabric/test_provider/context_table.h"
#include "transports/fabric/test_provider/object.h"
#include "transports/fabric/test_provider/settings.h"
#include "transports/fabric/test_provider/wire.h"

namespace trnccl::manners {

struct Fabric : fid_fabric {
  uint64_t generation = 0;
  Flavour flavour = Flavour::kEfa;
  Settings settings;
  FaultPlan faults;
  std::mt19937_64 random;
  ContextTable contexts;
  int domains = 0;

  // Less than bound.
  size_t Draw(size_t bound) { return random() % bound; }
};

struct Region;

struct Domain : fid_domain {
  Fabric* fabric = nullptr;
  uint32_t nic = 0;
  uint64_t caps = 0;
  int mr_mode = 0;
  int users = 0;  // queues, address vectors and endpoints
  std::map<const void*, std::shared_ptr<Region>> regions;
  std::map<uint64_t, Region*> keys;
  std::set<uint64_t> closed_keys;
  std::set<Address> endpoints;
};

inline Fabric* FabricOf(fid_fabric* fabric) {
  return static_cast<Fabric*>(fabric);
}
inline Domain* DomainOf(fid_domain* domain) {
  return static_cast<Domain*>(domain);
}

// fi_provider's call.
int OpenFabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context);

}  // namespace trnccl::manners
