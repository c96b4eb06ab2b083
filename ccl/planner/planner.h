// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The tuner: chooses, for a call, the cheapest legal algorithm and how to cut
// and pipeline it, by comparing costs (algorithms/cost.h), and keeps the plans.
// It decides from what all ranks know alike, so that all decide alike.
//
// Thread rule: thread-compatible; owned with its communicator.
//
//   ASSIGN_OR_RETURN(const Plan* plan, planner.PlanFor(call));
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "algorithms/cost.h"
#include "algorithms/spec.h"
#include "ccl/base/membership.h"
#include "ccl/base/settings.h"
#include "ccl/executor/call.h"
#include "ccl/executor/plan.h"
#include "ccl/planner/algorithm_filter.h"
#include "ccl/route.h"

namespace trnccl {

class Planner {
 public:
  struct Options {
    Membership membership;
    const Grid* grid = nullptr;  // these three outlive the planner
    const Routes* routes = nullptr;
    const Settings* settings = nullptr;
    LinkModel model;
    size_t slice_bytes = 0;  // of the transports; 0: there are none
    int lanes = 1;
  };
  static absl::StatusOr<std::unique_ptr<Planner>> Create(
      const Options& options);

  // Valid until the next call. InvalidArgument if the settings leave no
  // algorithm for this call.
  absl::StatusOr<const Plan*> PlanFor(const CollectiveCall& call);

 private:
  // What makes two calls alike for planning.
  struct Key {
    Collective collective = Collective::kAllReduce;
    DataType type = DataType::kFloat32;
    int root = 0;
    int64_t count = -1;

    bool operator==(const Key&) const = default;
  };
  struct Cached {
    Key key;
    std::unique_ptr<Plan> plan;
  };
  static constexpr size_t kCachedPlans = 64;

  Planner(const Options& options, AlgorithmFilter filter)
      : options_(options), filter_(std::move(filter)) {}

  Shape ShapeOf(int root) const;
  bool MayUse(const Algorithm& algorithm, const CollectiveCall& call) const;
  struct Choice {
    const Algorithm* algorithm = nullptr;
    PlanSizes sizes;
    double seconds = 0;
    double sent_across = 0;  // by a node, in blocks
  };
  absl::StatusOr<Choice> Choose(const CollectiveCall& call);
  // The cheapest of the ways to cut the call for this algorithm; no algorithm
  // if its messages fit no slice.
  Choice Cut(const CompiledProgram& program, const CollectiveCall& call);
  // Elements of a block in the largest segment whose messages fit a slice.
  int64_t LargestSegment(const CompiledProgram& program,
                         const CollectiveCall& call) const;
  // Bytes of an element in a message.
  size_t WireBytes(const CollectiveCall& call) const;
  EngineUse EngineUseOf(const CollectiveCall& call, double plan_s) const;
  const CompiledProgram& ProgramOf(const Algorithm& algorithm, int root);
  const PlanCost& CostOf(const Algorithm& algorithm, int root);
  absl::Status NoneLeft(const CollectiveCall& call) const;

  Options options_;
  AlgorithmFilter filter_;
  std::map<std::pair<const Algorithm*, int>, std::unique_ptr<CompiledProgram>>
      programs_;
  std::map<std::pair<const Algorithm*, int>, std::unique_ptr<PlanCost>> costs_;
  size_t costs_bytes_ = 0;
  Cached cache_[kCachedPlans];
};

}  // namespace trnccl
