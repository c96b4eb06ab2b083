// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/plan.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ccl/base/status_macros.h"
#include "ccl/communicator/create.h"
#include "ccl/planner/model_file.h"
#include "ccl/planner/planner.h"
#include "ccl/topology/host_facts.h"
#include "ccl/topology/topology.h"
#include "transports/shm/arena.h"

namespace trnccl::cli {
namespace {

constexpr int kMostRanks = 1024;
constexpr int64_t kLeastBytes = 8;
constexpr int64_t kMostBytes = 128 << 20;
constexpr int64_t kStep = 4;

absl::StatusOr<Collective> CollectiveOf(std::string_view name) {
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (Name(collective) != name) continue;
    if (SpecOf(collective).uneven || collective == Collective::kBarrier) break;
    return collective;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("plan: \"", std::string(name),
                   "\" isn't a collective of even blocks, such as all_reduce"));
}

// Nodes like this machine, on which the ranks may run wherever this process
// may, filled one after the other.
absl::StatusOr<Topology> NodesLikeThis(const PlanOptions& options) {
  ASSIGN_OR_RETURN(const HostFacts here, GatherHostFacts(""));
  std::vector<HostFacts> hosts;
  for (int rank = 0; rank < options.ranks; ++rank) {
    hosts.push_back(here);
    hosts.back().host_id = absl::StrCat(rank * options.nodes / options.ranks);
    hosts.back().machine = hosts.back().host_id;
  }
  return MakeTopology(std::move(hosts), 0);
}

// Of a message over shared memory among the ranks of a node.
size_t SliceBytes(size_t ranks, const Settings& settings) {
  const size_t links = std::max<size_t>(1, ranks - 1);
  const int lanes = CollectiveLanes(settings) + Communicator::kOwnLanes;
  return shm::Arena::ShapeFor(static_cast<size_t>(settings.arena_bytes),
                              links * static_cast<size_t>(lanes))
      .slice_bytes;
}

std::string_view EngineText(EngineUse use) {
  switch (use) {
    case EngineUse::kNever:
      return "never";
    case EngineUse::kMapped:
      return "if mapped";
    case EngineUse::kAlways:
      return "always";
  }
  return "";
}

// Elements of a block, where the larger buffer has so many bytes.
int64_t BlockCount(const PlanOptions& options, int64_t bytes) {
  const Spec& spec = SpecOf(options.collective);
  const Shape shape{.ranks = options.ranks};
  const int64_t blocks =
      std::max({int64_t{1}, spec.input(shape).count, spec.output(shape).count});
  return bytes / static_cast<int64_t>(sizeof(float)) / blocks;
}

std::string RowText(int64_t bytes, const Plan& plan) {
  return absl::StrFormat("%12d  %-26s %9d %9d  %-9s %12.2f\n", bytes,
                         std::string(plan.program->algorithm->name),
                         plan.sizes.segments, plan.sizes.slots,
                         std::string(EngineText(plan.engine)),
                         plan.seconds * 1e6);
}

}  // namespace

absl::StatusOr<PlanOptions> ParsePlanFlags(std::span<char* const> arguments) {
  PlanOptions options;
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const std::string_view flag = arguments[i];
    const char* value = i + 1 < arguments.size() ? arguments[i + 1] : "";
    if (flag == "--ranks") {
      if (!absl::SimpleAtoi(value, &options.ranks) || options.ranks < 2 ||
          options.ranks > kMostRanks)
        return absl::InvalidArgumentError(
            absl::StrCat("plan: --ranks takes a number from 2 to ", kMostRanks,
                         ", not \"", value, "\""));
    } else if (flag == "--nodes") {
      if (!absl::SimpleAtoi(value, &options.nodes) || options.nodes < 1)
        return absl::InvalidArgumentError(absl::StrCat(
            "plan: --nodes takes a number from 1, not \"", value, "\""));
    } else if (flag == "--collective") {
      ASSIGN_OR_RETURN(options.collective, CollectiveOf(value));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("plan: \"", arguments[i],
                       "\" isn't --ranks N, --nodes N or --collective NAME"));
    }
  }
  if (options.nodes > options.ranks)
    return absl::InvalidArgumentError(
        absl::StrCat("plan: ", options.ranks, " ranks (--ranks) don't fill ",
                     options.nodes, " nodes (--nodes)"));
  return options;
}

absl::StatusOr<std::string> PlanTable(const PlanOptions& options,
                                      const Settings& settings) {
  ASSIGN_OR_RETURN(const Topology topology, NodesLikeThis(options));
  ASSIGN_OR_RETURN(LinkModel model, ChosenModel(settings.tuning_file));
  model.ranks_per_core = RanksPerCore(topology);
  // Of no transport: nothing runs.
  const Routes routes(static_cast<size_t>(options.ranks));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Planner> planner,
      Planner::Create(
          {.membership = {.rank = 0, .ranks = options.ranks},
           .grid = &topology.grid,
           .routes = &routes,
           .settings = &settings,
           .model = model,
           .slice_bytes = SliceBytes(topology.local_ranks().size(), settings),
           .lanes = CollectiveLanes(settings)}));
  std::string text = absl::StrFormat(
      "# %s of float32, %d ranks on %d like this machine, constants: %s\n"
      "#      bytes  algorithm                   segments in flight  engine"
      "    estimated us\n",
      std::string(Name(options.collective)), options.ranks, options.nodes,
      settings.tuning_file.empty() ? "built in" : settings.tuning_file);
  for (int64_t bytes = kLeastBytes; bytes <= kMostBytes; bytes *= kStep) {
    const BlockCounts counts = BlockCounts::Even(BlockCount(options, bytes));
    ASSIGN_OR_RETURN(const Plan* plan,
                     planner->PlanFor({.collective = options.collective,
                                       .input_counts = counts,
                                       .output_counts = counts}));
    text += RowText(bytes, *plan);
  }
  return text;
}

absl::Status RunPlan(std::span<char* const> arguments) {
  ASSIGN_OR_RETURN(const PlanOptions options, ParsePlanFlags(arguments));
  ASSIGN_OR_RETURN(const Settings settings, LoadSettings(environ, {}));
  ASSIGN_OR_RETURN(const std::string text, PlanTable(options, settings));
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace trnccl::cli
