// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The NICs that this provider pretends to have, as fi_info describes them.
//
// Thread rule: any thread.
//
//   info->nic = NewNic(settings, 0);  // freed with the info
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <string>

#include "transports/fabric/test_provider/settings.h"

namespace trnccl::manners {

std::string NicName(size_t nic);
fid_nic* NewNic(const Settings& settings, size_t nic);

}  // namespace trnccl::manners
