// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The entry that libfabric looks for in lib*-fi.so on FI_PROVIDER_PATH.
#include <rdma/providers/fi_prov.h>

#include "transports/fabric/test_provider/fabric.h"
#include "transports/fabric/test_provider/info.h"

extern "C" FI_EXT_INI {
  using trnccl::manners::OpenFabric;
  static fi_provider provider = {
      .version = FI_VERSION(1, 0),
      // A library refuses callers that ask for more than its providers know.
      .fi_version = fi_version(),
      .name = trnccl::manners::kProviderName,
      .getinfo = [](uint32_t, const char*, const char*, uint64_t,
                    const fi_info* hints, fi_info** info) -> int {
        return trnccl::manners::Offers(hints, info);
      },
      .fabric = OpenFabric,
      .cleanup = [] {},
  };
  return &provider;
}
