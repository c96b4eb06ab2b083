// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Address vectors: fi_addr_t is the index of an inserted address. An address
// that's inserted twice keeps its index, as with EFA.
//
// Thread rule: under ProviderMutex() (fork_guard.h).
//
//   const Address& peer = av.At(fi_addr);  // aborts if it wasn't inserted
#pragma once

#include <rdma/fi_domain.h>

#include <map>
#include <optional>
#include <vector>

#include "transports/fabric/test_provider/fabric.h"
#include "transports/fabric/test_provider/wire.h"

namespace trnccl::manners {

struct AddressVector : fid_av {
  Domain* domain = nullptr;
  int endpoints = 0;  // bound to it
  std::vector<std::optional<Address>> addresses;
  std::map<Address, fi_addr_t> indices;

  const Address& At(fi_addr_t address) const;
  // FI_ADDR_NOTAVAIL if it isn't inserted.
  fi_addr_t IndexOf(const Address& address) const;
};

int OpenAddressVector(Domain& domain, const fi_av_attr& attr, fid_av** av,
                      void* context);

}  // namespace trnccl::manners
