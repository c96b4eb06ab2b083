// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <x86intrin.h>

#include "ccl/base/clock.h"

namespace trnccl {

uint64_t ReadTicks() { return __rdtsc(); }

}  // namespace trnccl
