// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The fold trees of a symbolic run. Equal trees have equal numbers, so that
// comparing two results is comparing two integers. A leaf is a rank's
// contribution; which chunk it belongs to is not part of the tree.
//
// Thread rule: thread-compatible.
//
//   FoldTrees trees(4);
//   const int32_t sum = trees.Fold({FoldTrees::Leaf(0), FoldTrees::Leaf(1)});
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace trnccl {

class FoldTrees {
 public:
  explicit FoldTrees(int ranks);
  FoldTrees(const FoldTrees&) = delete;
  FoldTrees& operator=(const FoldTrees&) = delete;

  static int32_t Leaf(int rank) { return rank; }

  // The fold of at least two trees, in this order.
  int32_t Fold(std::span<const int32_t> operands);
  int32_t Fold(std::initializer_list<int32_t> operands) {
    return Fold(std::span(operands.begin(), operands.size()));
  }

  // Contributions in the tree, repeated ones counted as often as they occur.
  int64_t Leaves(int32_t tree) const;

  // For trees of exactly as many leaves as ranks: whether each rank is there.
  bool HasEveryRank(int32_t tree) const;
  // ((0 op 1) op 2) ..., where one fold may take several ranks in a row.
  bool IsLeftFold(int32_t tree) const;

 private:
  struct Node {
    size_t first_operand = 0;
    size_t operands = 0;
    int64_t leaves = 0;
  };
  struct SameOperands {
    using is_transparent = void;
    const FoldTrees* trees;
    size_t operator()(int32_t tree) const;
    bool operator()(int32_t a, int32_t b) const;
  };

  std::span<const int32_t> OperandsOf(int32_t tree) const;
  // The leaves from left to right.
  std::vector<int32_t> Flatten(int32_t tree) const;

  int ranks_;
  std::vector<Node> nodes_;  // of tree `ranks_ + i`
  std::vector<int32_t> operands_;
  absl::flat_hash_set<int32_t, SameOperands, SameOperands> known_;
};

}  // namespace trnccl
