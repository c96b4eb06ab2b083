// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// fi_getinfo(): what this provider offers, an entry for each fabric and NIC,
// and whether a caller's hints can live with it.
//
// Thread rule: any thread, but not while the environment changes.
//
//   const std::string name = DomainName(1);  // "manners1-rdm", on both fabrics
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "transports/fabric/test_provider/settings.h"

namespace trnccl::manners {

constexpr const char* kProviderName = "manners";

std::string DomainName(size_t nic);

// What suits the hints, which may be null: 0 or -FI_ENODATA.
int Offers(const fi_info* hints, fi_info** info);

}  // namespace trnccl::manners
