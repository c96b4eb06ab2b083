// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/planner/engine_cost.h"

#include <algorithm>

namespace trnccl {
namespace {

// In blocks: what a rank moves to and from others, by how many calls of the
// kernel, and what it reads to fold or copies in its own memory.
struct Moved {
  double between = 0;
  double calls = 0;
  double copied = 0;
  double folded = 0;
};

// Operands that came by the kernel lie in the private cache when they're
// folded.
constexpr double kHotFold = 0.5;

// A short reduce is all the root's, a long one everyone's (transports/shm):
// what lies between.
Moved MovedBy(Collective collective, double ranks) {
  const double others = ranks - 1;
  switch (collective) {
    case Collective::kAllReduce:
      return {.between = 2 * others / ranks, .calls = 2 * others, .folded = 1};
    case Collective::kReduce:
      return {.between = 1, .calls = others, .folded = ranks / 2};
    case Collective::kReduceScatter:
      return {.between = others, .calls = others, .folded = ranks};
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return {.between = others, .calls = others, .copied = 1};
    default:
      return {.between = 1, .calls = 1};
  }
}

}  // namespace

double EngineExchangeSeconds(const LinkModel& model) {
  return std::max(1.0, model.ranks_per_core) *
         (model.same_node.latency_s + model.same_node.message_s + model.step_s);
}

size_t PeerCopyMinBytes(const LinkModel& model) {
  const double saved_per_byte = model.same_node.seconds_per_byte +
                                model.copy_seconds_per_byte -
                                model.peer_copy.seconds_per_byte;
  constexpr double kMost = 1 << 30;
  return model.peer_copy.call_s < kMost * saved_per_byte
             ? static_cast<size_t>(model.peer_copy.call_s / saved_per_byte)
             : SIZE_MAX;
}

double CopyingEngineSeconds(const EngineWork& work, const LinkModel& model) {
  const auto bytes = static_cast<double>(work.block_bytes);
  const Moved moved = MovedBy(work.collective, work.ranks);
  const double seconds =
      moved.between * bytes * model.peer_copy.seconds_per_byte +
      moved.calls * model.peer_copy.call_s +
      moved.copied * bytes * model.copy_seconds_per_byte +
      moved.folded * bytes * kHotFold * model.fold_seconds_per_byte;
  return 2 * EngineExchangeSeconds(model) +
         std::max(1.0, model.ranks_per_core) * seconds;
}

}  // namespace trnccl
