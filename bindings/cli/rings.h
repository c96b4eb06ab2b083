// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The recorders of this machine's processes, read out of their memory: also of
// those that are stopped or hang, since they aren't asked.
//
// Thread rule: reads /proc; thread-safe.
//
//   const Job job = ReadRings({});
#pragma once

#include <sys/types.h>

#include <span>

#include "bindings/cli/job.h"

namespace trnccl::cli {

// Of these processes, or, with none, of all that this one may look at.
Job ReadRings(std::span<const pid_t> pids);

}  // namespace trnccl::cli
