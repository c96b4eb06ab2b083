// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/breach.h"

#include <cstdio>
#include <cstdlib>

namespace trnccl::manners {

void Abort(const std::string& sentence) {
  std::fprintf(stderr, "manners: breach: %s\n", sentence.c_str());
  std::abort();
}

}  // namespace trnccl::manners
