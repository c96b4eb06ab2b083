// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/planner/planner.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

// Programs differ by root: a loop over roots of a large communicator must not
// keep them all.
constexpr size_t kMaxPrograms = 256;

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

PlanSizes Planner::SizesOf(const CompiledProgram& program,
                           const CollectiveCall& call) const {
  const int64_t largest = LargestBlock(call);
  const int64_t chunks = program.source.chunks_per_block;
  if (options_.slice_bytes == 0)
    return {.segment_count = std::max<int64_t>(1, largest)};
  // Strict determinism sends partial sums of narrow floats as float32.
  const bool widens = options_.settings->determinism == Determinism::kStrict &&
                      IsNarrowFloat(call.type);
  const size_t element_bytes = widens ? sizeof(float) : ElementBytes(call.type);
  const auto slice_elements =
      static_cast<int64_t>(options_.slice_bytes / element_bytes);
  const int64_t chunk_elements =
      slice_elements / program.most_chunks_per_message;
  if (chunk_elements == 0) return {.segment_count = 0};
  int64_t segment_count = chunk_elements * chunks;
  if (options_.settings->segment_bytes > 0) {
    const auto wanted = static_cast<int64_t>(
        static_cast<size_t>(options_.settings->segment_bytes) / element_bytes);
    segment_count = std::clamp<int64_t>(wanted, 1, segment_count);
  }
  const int64_t segments = SegmentsFor(largest, segment_count);
  const int64_t slots = std::max(1, options_.lanes / program.lanes());
  return {.segment_count =
              segments == 1 ? std::max<int64_t>(1, largest) : segment_count,
          .segments = segments,
          .slots = static_cast<int>(std::min(segments, slots))};
}

absl::StatusOr<const CompiledProgram*> Planner::Choose(
    const CollectiveCall& call) {
  for (const Algorithm& algorithm : Catalog()) {
    if (!MayUse(algorithm, call)) continue;
    const CompiledProgram& program = ProgramOf(algorithm, call.root);
    if (program.lanes() > options_.lanes ||
        SizesOf(program, call).segment_count == 0)
      continue;
    return &program;
  }
  return NoneLeft(call);
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
  const Key key{.collective = call.collective,
                .type = call.type,
                .root = call.root,
                .count = call.output_counts.even_count};
  const bool even = !SpecOf(call.collective).uneven;
  const size_t hash =
      (static_cast<size_t>(key.count) * 0x9e3779b97f4a7c15u >> 32) ^
      (static_cast<size_t>(key.collective) * 7 +
       static_cast<size_t>(key.type) * 31 + static_cast<size_t>(key.root));
  Cached& cached = cache_[hash % kCachedPlans];
  if (even && cached.plan != nullptr && cached.key == key)
    return cached.plan.get();
  if (programs_.size() > kMaxPrograms) {
    // Plans point to programs: all go together.
    for (Cached& entry : cache_) entry = {};
    programs_.clear();
  }
  ASSIGN_OR_RETURN(const CompiledProgram* program, Choose(call));
  Plan plan =
      MakePlan(*program, call, ShapeOf(call.root), SizesOf(*program, call));
  if (!even) {
    uneven_plan_ = std::move(plan);
    return &uneven_plan_;
  }
  cached = {.key = key, .plan = std::make_unique<Plan>(std::move(plan))};
  return cached.plan.get();
}

bool Planner::PrefersEngine(const CollectiveCall& call) const {
  constexpr size_t kAutoBytes = 8192;
  const size_t least =
      options_.settings->engine_min_bytes > 0
          ? static_cast<size_t>(options_.settings->engine_min_bytes)
          : kAutoBytes;
  const auto count = static_cast<size_t>(call.output_counts.even_count);
  return count >= least / ElementBytes(call.type);
}

}  // namespace trnccl
