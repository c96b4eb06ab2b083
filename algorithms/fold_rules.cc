// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/fold_rules.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

constexpr int32_t kNone = -1;

absl::Status Wrong(const std::string& text) {
  return absl::InternalError(text);
}

}  // namespace

FoldRules::FoldRules(const Options& options)
    : options_(options),
      trees_(options.ranks),
      complete_trees_(static_cast<size_t>(options.chunks), kNone) {}

absl::StatusOr<std::vector<int32_t>> FoldRules::Fold(
    const Step& step, std::span<const int64_t> chunks,
    std::span<const OperandValues> operands) {
  if (chunks.empty()) return std::vector<int32_t>();
  const bool folds = operands.size() > 1;
  if (!options_.reduces) {
    if (folds) return Wrong("folds, but nothing is reduced here");
    if (step.completes || step.partial) {
      return Wrong("is marked partial or complete, but nothing is reduced");
    }
    return operands.front().trees;
  }
  std::vector<int32_t> results = operands.front().trees;
  std::vector<int32_t> row(operands.size());
  bool any_partial = false;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (folds) {
      for (size_t k = 0; k < row.size(); ++k) row[k] = operands[k].trees[i];
      results[i] = trees_.Fold(row);
    }
    RETURN_IF_ERROR(
        CheckMarks(step, {.chunk = chunks[i],
                          .tree = results[i],
                          .is_new = folds || operands.front().raw}));
    const int64_t contributions = trees_.Leaves(results[i]);
    any_partial |= contributions > 1 && contributions < options_.ranks;
  }
  // One input alone is exact in either form, so it may go with partial chunks.
  if (any_partial && !step.partial) {
    return Wrong("isn't marked partial, but folds some of the contributions");
  }
  if (step.partial && step.stores && step.store.buffer == Buffer::kOutput &&
      options_.left_fold) {
    return Wrong(
        "keeps a partial result in the output, which has no room for its "
        "wider type");
  }
  return results;
}

absl::Status FoldRules::CheckMarks(const Step& step, const Result& result) {
  const int64_t contributions = trees_.Leaves(result.tree);
  if (contributions > options_.ranks) {
    return Wrong(absl::StrCat("folds ", contributions,
                              " contributions into chunk ", result.chunk));
  }
  const bool is_full = contributions == options_.ranks;
  if (step.completes != (is_full && result.is_new)) {
    return Wrong(
        absl::StrCat("is marked ", step.completes ? "complete" : "not complete",
                     ", but chunk ", result.chunk, " gets ", contributions,
                     " of ", options_.ranks, " contributions",
                     is_full && !result.is_new ? ", complete before" : ""));
  }
  if (step.partial && is_full) {
    return Wrong(absl::StrCat("is marked partial, but chunk ", result.chunk,
                              " is complete"));
  }
  return step.completes ? CheckComplete(result) : absl::OkStatus();
}

absl::Status FoldRules::CheckComplete(const Result& result) {
  int32_t& complete = complete_trees_[static_cast<size_t>(result.chunk)];
  if (complete == result.tree) return absl::OkStatus();
  if (complete != kNone) {
    return Wrong(absl::StrCat("folds chunk ", result.chunk,
                              " in another order than another rank does"));
  }
  if (!trees_.HasEveryRank(result.tree)) {
    return Wrong(absl::StrCat("has a contribution to chunk ", result.chunk,
                              " twice, and another not at all"));
  }
  if (options_.left_fold && !trees_.IsLeftFold(result.tree)) {
    return Wrong(absl::StrCat("doesn't fold chunk ", result.chunk,
                              " in the order of the ranks"));
  }
  complete = result.tree;
  return absl::OkStatus();
}

}  // namespace trnccl
