// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace trnccl::internal {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "trnccl: %s:%d: broken invariant: %s\n", file, line,
               condition);
  std::abort();
}

}  // namespace trnccl::internal
