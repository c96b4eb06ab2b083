// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The collective engine of a node's ranks: each rank folds its part from all
// inputs into all outputs, or copies what it needs from where it lies, in one
// pass. Memory that all have mapped (transports/shared_memory.h) is used where
// it is; other memory goes through the kernel (process_memory.h), piece by
// piece, where the call is large enough and every rank may. Of each call only
// those buffers matter that a peer touches:
//
//   all-reduce      a part a rank, from all inputs into all outputs
//   reduce          a part a rank, from all inputs into the root's output; a
//                   short one by the root alone
//   reduce-scatter  its block, from all inputs into its own output
//   all-gather      all blocks, from all inputs into its own output
//   broadcast       all, from the root's input into its own output
//   scatter         its block, from the root's input into its own output
//   gather          its block, from its own input into the root's output
//   all-to-all      its blocks, from all inputs into its own output
//
// All may be in place but all-to-all.
//
// Thread rule: that of Engine.
//
//   std::unique_ptr<Engine> engine = MakeShmEngine(
//       {.membership = {.rank = 0, .ranks = 4}, .gate = &gate});
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "ccl/base/membership.h"
#include "transports/engine.h"
#include "transports/shm/gate.h"

namespace trnccl {

struct ShmEngineOptions {
  Membership membership;
  // This rank may read and write memory of its peers that isn't mapped.
  bool reaches_unmapped = false;
  shm::Gate* gate = nullptr;  // outlives the engine
  // Of the ranks' processes: what isn't mapped is reached in no other one.
  std::vector<pid_t> pids;
};

std::unique_ptr<Engine> MakeShmEngine(const ShmEngineOptions& options);

}  // namespace trnccl
