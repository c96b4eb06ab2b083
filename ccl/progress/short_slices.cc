// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/progress/short_slices.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trnccl {
namespace {

// The least that kernels take.
constexpr unsigned kSliceNs = 100'000;

}  // namespace

void UseShortSlices() {
  // Set with all else as it is: niceness above all.
  sched_attr attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0)
    return;
  // Of other policies, it's part of the contract.
  if (attributes.sched_policy != SCHED_NORMAL &&
      attributes.sched_policy != SCHED_BATCH)
    return;
  attributes.sched_runtime = kSliceNs;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace trnccl
