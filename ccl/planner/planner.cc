// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/planner/planner.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "ccl/planner/engine_cost.h"

namespace trnccl {
namespace {

// Programs differ by root: a loop over roots of a large communicator must not
// keep them all.
constexpr size_t kMaxPrograms = 256;

// Costs of long schedules have megabytes.
constexpr size_t kMaxCostsBytes = size_t{16} << 20;

// Segments down to this fraction of the largest are compared.
constexpr int64_t kMostCut = 16;

// So much longer a call may take where less crosses between nodes: what the
// network does for others isn't in the model.
constexpr double kWorthOfFewerBytes = 1.15;

// Blocks above this don't stay in a core's own cache. There, what's on its way
// must be in pieces that do, or each copy of it, the kernel's too, goes through
// memory: of 16 MiB between two nodes over TCP, pieces of 512 KiB take twice as
// long as of 128. Below, a message more costs more than that.
struct HotLimits {
  int64_t block_bytes;
  size_t slice_bytes;
};
constexpr HotLimits kHot{int64_t{1} << 20, size_t{128} << 10};
// Where the ranks of a node copy to each other in between: of 4 MiB between two
// nodes of two ranks, pieces of 128 KiB take 1.6 times as long as of 64.
constexpr HotLimits kHotInCrowd{int64_t{512} << 10, size_t{64} << 10};

HotLimits HotLimitsOf(const Grid* grid) {
  if (grid == nullptr || grid->nodes.size() == 1) return kHot;
  const bool crowded = std::ranges::any_of(
      grid->nodes, [](const auto& ranks) { return ranks.size() > 1; });
  return crowded ? kHotInCrowd : kHot;
}

// The share of a plan's cost that asking for the engine may add to it.
constexpr double kMostExchange = 0.25;

int64_t LargestBlock(const CollectiveCall& call) {
  int64_t largest =
      std::max(call.input_counts.even_count, call.output_counts.even_count);
  for (const int64_t count : call.input_counts.counts)
    largest = std::max(largest, count);
  for (const int64_t count : call.output_counts.counts)
    largest = std::max(largest, count);
  return largest;
}

// The row of an even collective also serves its uneven sister.
bool Serves(const Algorithm& algorithm, Collective collective) {
  return FindAlgorithm(collective, algorithm.name) == &algorithm;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Planner>> Planner::Create(
    const Options& options) {
  ASSIGN_OR_RETURN(AlgorithmFilter filter,
                   AlgorithmFilter::Parse(options.settings->algorithm));
  return std::unique_ptr<Planner>(new Planner(options, std::move(filter)));
}

Shape Planner::ShapeOf(int root) const {
  return {.ranks = options_.membership.ranks,
          .rank = options_.membership.rank,
          .root = root,
          .grid = options_.grid};
}

bool Planner::MayUse(const Algorithm& algorithm,
                     const CollectiveCall& call) const {
  const Spec& spec = SpecOf(call.collective);
  const bool strict = options_.settings->determinism == Determinism::kStrict;
  // Whether a rank is in place is known to that rank alone: what's chosen must
  // work in place wherever a call can be.
  return Serves(algorithm, call.collective) && algorithm.proofs.in_place &&
         (!strict || !spec.reduces || algorithm.proofs.left_fold) &&
         algorithm.legal(ShapeOf(call.root)) && filter_.Allows(algorithm);
}

const CompiledProgram& Planner::ProgramOf(const Algorithm& algorithm,
                                          int root) {
  auto& program = programs_[{&algorithm, root}];
  if (program == nullptr) {
    program = std::make_unique<CompiledProgram>(
        Compile(algorithm, ShapeOf(root), *options_.routes));
  }
  return *program;
}

const PlanCost& Planner::CostOf(const Algorithm& algorithm, int root) {
  if (costs_bytes_ > kMaxCostsBytes) {
    costs_.clear();
    costs_bytes_ = 0;
  }
  auto& cost = costs_[{&algorithm, root}];
  if (cost == nullptr) {
    cost = std::make_unique<PlanCost>(algorithm, ShapeOf(root), options_.model);
    costs_bytes_ += cost->bytes();
  }
  return *cost;
}

int64_t Planner::LargestSegment(const CompiledProgram& program,
                                const CollectiveCall& call) const {
  if (options_.slice_bytes == 0)
    return std::max<int64_t>(1, LargestBlock(call));
  const auto block_bytes =
      LargestBlock(call) * static_cast<int64_t>(ElementBytes(call.type));
  const HotLimits hot = HotLimitsOf(options_.grid);
  // Of all-to-all-v's counts ranks know only their own.
  const bool in_pieces = call.collective != Collective::kAllToAllV &&
                         block_bytes > hot.block_bytes;
  const size_t slice_bytes =
      in_pieces ? std::min(options_.slice_bytes, hot.slice_bytes)
                : options_.slice_bytes;
  const auto slice_elements =
      static_cast<int64_t>(slice_bytes / WireBytes(call));
  return slice_elements / program.most_chunks_per_message *
         program.source.chunks_per_block;
}

size_t Planner::WireBytes(const CollectiveCall& call) const {
  // Strict determinism sends partial sums of narrow floats as float32.
  const bool widens = options_.settings->determinism == Determinism::kStrict &&
                      IsNarrowFloat(call.type);
  return widens ? sizeof(float) : ElementBytes(call.type);
}

Planner::Choice Planner::Cut(const CompiledProgram& program,
                             const CollectiveCall& call) {
  const int64_t block = LargestBlock(call);
  int64_t largest = LargestSegment(program, call);
  if (largest == 0 || program.lanes() > options_.lanes) return {};
  int64_t least = std::max<int64_t>(1, largest / kMostCut);
  if (options_.settings->segment_bytes > 0) {
    const auto wanted = static_cast<int64_t>(
        static_cast<size_t>(options_.settings->segment_bytes) /
        WireBytes(call));
    largest = least = std::clamp<int64_t>(wanted, 1, largest);
  }
  // How much the pairs of other ranks exchange isn't known: what's chosen may
  // follow from the largest segment alone. Each pair makes as many segments as
  // its own count needs.
  const bool pairs = call.collective == Collective::kAllToAllV;
  if (pairs) least = largest;
  const int64_t most_slots = std::max(1, options_.lanes / program.lanes());
  const PlanCost& cost = CostOf(*program.algorithm, call.root);
  Choice best;
  for (int64_t cut = largest; cut >= least; cut /= 2) {
    const int64_t segments = SegmentsFor(block, cut);
    const PlanSizes sizes{
        .segment_count = segments == 1 ? std::max<int64_t>(1, block) : cut,
        .segments = segments,
        .slots = static_cast<int>(std::min(segments, most_slots))};
    const double seconds =
        cost.Seconds({.block_count = pairs ? largest : block,
                      .element_bytes = static_cast<int64_t>(WireBytes(call)),
                      .segment_count = sizes.segment_count,
                      .segments_in_flight = pairs ? 1 : sizes.slots});
    if (best.algorithm == nullptr || seconds < best.seconds)
      best = {program.algorithm, sizes, seconds, cost.sent_across()};
  }
  return best;
}

absl::StatusOr<Planner::Choice> Planner::Choose(const CollectiveCall& call) {
  std::vector<Choice> choices;
  for (const Algorithm& algorithm : Catalog()) {
    if (!MayUse(algorithm, call)) continue;
    const Choice choice = Cut(ProgramOf(algorithm, call.root), call);
    if (choice.algorithm != nullptr) choices.push_back(choice);
  }
  if (choices.empty()) return NoneLeft(call);
  const auto cheaper = [](const Choice& a, const Choice& b) {
    return a.seconds < b.seconds;
  };
  const double enough =
      kWorthOfFewerBytes * std::ranges::min_element(choices, cheaper)->seconds;
  return *std::ranges::min_element(
      choices, [&](const Choice& a, const Choice& b) {
        const bool a_dear = a.seconds > enough;
        const bool b_dear = b.seconds > enough;
        return std::tie(a_dear, a.sent_across, a.seconds) <
               std::tie(b_dear, b.sent_across, b.seconds);
      });
}

absl::Status Planner::NoneLeft(const CollectiveCall& call) const {
  const bool strict = options_.settings->determinism == Determinism::kStrict;
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", options_.membership.rank, ": no algorithm is left for ",
      std::string(Name(call.collective)), " on ", options_.membership.ranks,
      " ranks", strict ? " under TRNCCL_DETERMINISM=strict" : "",
      options_.settings->algorithm.empty()
          ? ""
          : absl::StrCat(" with TRNCCL_ALGORITHM=",
                         options_.settings->algorithm),
      "; allow more, or raise TRNCCL_ARENA_BYTES if messages don't fit"));
}

absl::StatusOr<const Plan*> Planner::PlanFor(const CollectiveCall& call) {
  // Of an uneven call's counts, only the largest shapes its plan.
  const bool even = !SpecOf(call.collective).uneven;
  const Key key{
      .collective = call.collective,
      .type = call.type,
      .root = call.root,
      .count = even ? call.output_counts.even_count : LargestBlock(call)};
  const size_t hash =
      (static_cast<size_t>(key.count) * 0x9e3779b97f4a7c15u >> 32) ^
      (static_cast<size_t>(key.collective) * 7 +
       static_cast<size_t>(key.type) * 31 + static_cast<size_t>(key.root));
  Cached& cached = cache_[hash % kCachedPlans];
  if (cached.plan != nullptr && cached.key == key) return cached.plan.get();
  if (programs_.size() > kMaxPrograms) {
    // Plans point to programs: all go together.
    for (Cached& entry : cache_) entry = {};
    programs_.clear();
    costs_.clear();
    costs_bytes_ = 0;
  }
  ASSIGN_OR_RETURN(const Choice choice, Choose(call));
  Plan plan = MakePlan(ProgramOf(*choice.algorithm, call.root), call,
                       ShapeOf(call.root), choice.sizes);
  plan.seconds = choice.seconds;
  plan.engine = even ? EngineUseOf(call, choice.seconds) : EngineUse::kNever;
  cached = {.key = key, .plan = std::make_unique<Plan>(std::move(plan))};
  return cached.plan.get();
}

EngineUse Planner::EngineUseOf(const CollectiveCall& call,
                               double plan_s) const {
  // An engine is one node's.
  if (options_.grid != nullptr && options_.grid->nodes.size() > 1)
    return EngineUse::kNever;
  const auto block_bytes = static_cast<double>(call.output_counts.even_count) *
                           static_cast<double>(ElementBytes(call.type));
  if (options_.settings->engine_min_bytes > 0) {
    return block_bytes >=
                   static_cast<double>(options_.settings->engine_min_bytes)
               ? EngineUse::kAlways
               : EngineUse::kNever;
  }
  // Who lists algorithms wants these.
  if (filter_.Names(call.collective)) return EngineUse::kNever;
  // Whether all buffers are mapped shows only once the ranks have asked each
  // other: asking must cost little beside what the messages would.
  if (EngineExchangeSeconds(options_.model) > kMostExchange * plan_s)
    return EngineUse::kNever;
  const double copying_s =
      CopyingEngineSeconds({.collective = call.collective,
                            .ranks = options_.membership.ranks,
                            .block_bytes = static_cast<int64_t>(block_bytes)},
                           options_.model);
  return copying_s < plan_s ? EngineUse::kAlways : EngineUse::kMapped;
}

}  // namespace trnccl
