// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/faults/campaign/fault.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"

namespace trnccl {
namespace {

constexpr int64_t kLongMs = 60'000;
constexpr int64_t kInitMs = 3'000;

// About as many in each decade, up to the longest.
int64_t DrawDelayUs(std::mt19937_64& random, const std::string& phase) {
  const double longest_us = phase == "init" ? 100'000 : 30'000;
  std::uniform_real_distribution<double> exponent(0, std::log(longest_us));
  return static_cast<int64_t>(std::exp(exponent(random)));
}

size_t DrawCount(std::mt19937_64& random, int ranks) {
  constexpr size_t kMostElements = 1 << 19;  // of all blocks
  switch (std::uniform_int_distribution<int>(0, 2)(random)) {
    case 0:
      return std::uniform_int_distribution<size_t>(1, 64)(random);
    case 1:
      return std::uniform_int_distribution<size_t>(65, 10'000)(random);
    default:
      return kMostElements / static_cast<size_t>(ranks);
  }
}

}  // namespace

const char* NameOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKill:
      return "kill";
    case FaultKind::kStop:
      return "stop";
    case FaultKind::kStarve:
      return "starve";
    case FaultKind::kLeave:
      return "leave";
    case FaultKind::kCut:
      return "cut";
  }
  return "";
}

const std::vector<std::string>& Phases() {
  static const auto& all = *new std::vector<std::string>{"init",
                                                         "idle",
                                                         "all_reduce",
                                                         "reduce",
                                                         "reduce_scatter",
                                                         "all_gather",
                                                         "reduce_scatter_v",
                                                         "all_gather_v",
                                                         "gather",
                                                         "broadcast",
                                                         "scatter",
                                                         "barrier",
                                                         "all_to_all",
                                                         "all_to_all_v",
                                                         "send_receive",
                                                         "group",
                                                         "asynchronous",
                                                         "engine",
                                                         "split",
                                                         "mixed",
                                                         "destroy"};
  return all;
}

Fault DrawFault(uint64_t seed, const Scope& scope) {
  std::mt19937_64 random(seed);
  Fault fault;
  fault.seed = seed;
  fault.nodes = scope.nodes;
  fault.kind = scope.kinds[seed % scope.kinds.size()];
  fault.phase = scope.phases[seed / scope.kinds.size() % scope.phases.size()];
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  fault.ranks = draw(std::max(2, scope.nodes), scope.most_ranks);
  fault.victim = draw(0, fault.ranks - 1);
  fault.count = DrawCount(random, fault.ranks);
  fault.delay_us = DrawDelayUs(random, fault.phase);
  fault.warm = draw(0, 1) == 1;
  const bool is_in_init = fault.phase == "init";
  fault.timeout_ms = fault.IsByDeadline() ? draw(700, 1500) : kLongMs;
  fault.bootstrap_timeout_ms =
      fault.IsByDeadline() && is_in_init ? fault.timeout_ms : kInitMs;
  if (fault.kind == FaultKind::kCut) {
    fault.victim = 0;
    while (fault.NodeOf(fault.victim) != fault.nodes - 1) ++fault.victim;
  }
  return fault;
}

std::string Describe(const Fault& fault) {
  return absl::StrCat("seed ", fault.seed, ": ", NameOf(fault.kind), " rank ",
                      fault.victim, " of ", fault.ranks, " on ", fault.nodes,
                      " node(s) in ", fault.phase, ", ", fault.count,
                      " elements, after ", fault.delay_us, " us",
                      fault.warm ? ", warm" : "");
}

}  // namespace trnccl
