// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/fold_tree.h"

#include <algorithm>
#include <limits>

#include "absl/hash/hash.h"
#include "absl/types/span.h"

namespace trnccl {

FoldTrees::FoldTrees(int ranks)
    : ranks_(ranks), known_(0, SameOperands{this}, SameOperands{this}) {}

size_t FoldTrees::SameOperands::operator()(int32_t tree) const {
  const std::span<const int32_t> operands = trees->OperandsOf(tree);
  return absl::HashOf(absl::MakeSpan(operands.data(), operands.size()));
}

bool FoldTrees::SameOperands::operator()(int32_t a, int32_t b) const {
  return std::ranges::equal(trees->OperandsOf(a), trees->OperandsOf(b));
}

int32_t FoldTrees::Fold(std::span<const int32_t> operands) {
  Node node{.first_operand = operands_.size(), .operands = operands.size()};
  for (int32_t operand : operands) {
    // Saturates: sharing subtrees, a wrong schedule can double them for ever.
    node.leaves = std::min<int64_t>(node.leaves + Leaves(operand),
                                    std::numeric_limits<int32_t>::max());
  }
  const auto tree = static_cast<int32_t>(nodes_.size()) + ranks_;
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  nodes_.push_back(node);
  const auto [known, is_new] = known_.insert(tree);
  if (!is_new) {
    nodes_.pop_back();
    operands_.resize(node.first_operand);
  }
  return *known;
}

int64_t FoldTrees::Leaves(int32_t tree) const {
  return tree < ranks_ ? 1 : nodes_[static_cast<size_t>(tree - ranks_)].leaves;
}

bool FoldTrees::HasEveryRank(int32_t tree) const {
  std::vector<char> seen(static_cast<size_t>(ranks_));
  for (int32_t leaf : Flatten(tree)) seen[static_cast<size_t>(leaf)] = 1;
  return std::ranges::find(seen, 0) == seen.end();
}

bool FoldTrees::IsLeftFold(int32_t tree) const {
  // Only the first operand of a fold may be a fold.
  for (int32_t left = tree; left >= ranks_; left = OperandsOf(left).front()) {
    for (int32_t operand : OperandsOf(left).subspan(1)) {
      if (operand >= ranks_) return false;
    }
  }
  const std::vector<int32_t> leaves = Flatten(tree);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i] != static_cast<int32_t>(i)) return false;
  }
  return leaves.size() == static_cast<size_t>(ranks_);
}

std::span<const int32_t> FoldTrees::OperandsOf(int32_t tree) const {
  const Node& node = nodes_[static_cast<size_t>(tree - ranks_)];
  return std::span(operands_).subspan(node.first_operand, node.operands);
}

std::vector<int32_t> FoldTrees::Flatten(int32_t tree) const {
  std::vector<int32_t> leaves;
  std::vector<int32_t> pending = {tree};
  while (!pending.empty()) {
    const int32_t next = pending.back();
    pending.pop_back();
    if (next < ranks_) {
      leaves.push_back(next);
      continue;
    }
    const std::span<const int32_t> operands = OperandsOf(next);
    pending.insert(pending.end(), operands.rbegin(), operands.rend());
  }
  return leaves;
}

}  // namespace trnccl
