// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a step of a symbolic run may fold, and how it must be marked: each
// contribution once, every complete chunk in the same order on all ranks, and
// `completes` and `partial` exactly where they are true.
//
// Thread rule: thread-compatible.
//
//   ASSIGN_OR_RETURN(results, rules.Fold(step, chunks, operands));
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "algorithms/fold_tree.h"
#include "algorithms/rank_memory.h"
#include "algorithms/schedule.h"

namespace trnccl {

// What an operand of a step holds, chunk by chunk.
struct OperandValues {
  std::vector<int32_t> trees;
  std::vector<RankMemory::Cell*> cells;  // of a place; null: never changes
  bool raw = false;  // input of a reduction, before its prepare
};

class FoldRules {
 public:
  struct Options {
    int ranks = 1;
    int64_t chunks = 1;  // in all
    bool reduces = false;
    bool left_fold = false;  // the only order allowed
  };
  explicit FoldRules(const Options& options);

  // The result of each chunk, or what is wrong with the step.
  absl::StatusOr<std::vector<int32_t>> Fold(
      const Step& step, std::span<const int64_t> chunks,
      std::span<const OperandValues> operands);

  int64_t Contributions(int32_t tree) const { return trees_.Leaves(tree); }

 private:
  // A chunk's result, and whether this very step made it.
  struct Result {
    int64_t chunk = 0;
    int32_t tree = 0;
    bool is_new = false;
  };
  absl::Status CheckMarks(const Step& step, const Result& result);
  absl::Status CheckComplete(const Result& result);

  const Options options_;
  FoldTrees trees_;
  std::vector<int32_t> complete_trees_;  // by chunk, as first seen
};

}  // namespace trnccl
