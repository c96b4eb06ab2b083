// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The collective engine of memory that all ranks of a node have mapped
// (transports/shared_memory.h): each rank folds its part from all inputs into
// all outputs, or copies what it needs from where it lies, in one pass. Only
// buffers that a peer touches need be shared memory:
//
//   all-reduce      a part a rank, from all inputs into all outputs
//   reduce          a part a rank, from all inputs into the root's output
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
//   std::unique_ptr<Engine> engine = MakeShmEngine({.rank = 0, .ranks = 4});
#pragma once

#include <memory>

#include "ccl/base/membership.h"
#include "transports/engine.h"

namespace trnccl {

std::unique_ptr<Engine> MakeShmEngine(const Membership& membership);

}  // namespace trnccl
