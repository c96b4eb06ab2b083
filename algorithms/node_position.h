// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Where a rank stands in a grid of nodes. Ranks of the same place in their
// nodes are a column; a node with fewer ranks than the largest has its ranks
// stand in several columns, place % ranks, so that each column has one rank of
// every node. For the hierarchical builders.
//
// Thread rule: immutable; the shape's grid is borrowed.
//
//   NodePosition position(shape);
//   for (size_t column : position.ColumnsOf(position.place()))
//     ... position.Column(column) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "algorithms/spec.h"

namespace trnccl {

class NodePosition {
 public:
  explicit NodePosition(const Shape& shape);

  size_t nodes() const { return nodes_.size(); }
  size_t columns() const { return columns_; }
  size_t index() const { return index_; }  // of the rank's node
  size_t place() const { return place_; }  // of the rank in its node
  const std::vector<int>& node() const { return nodes_[index_]; }
  const std::vector<int>& node(size_t index) const { return nodes_[index]; }

  // The columns in which the rank at a place of this node stands.
  std::vector<size_t> ColumnsOf(size_t place) const;
  // The most columns in which any rank stands.
  int64_t MostColumns() const;
  // Who stands in the column, by node.
  std::vector<int> Column(size_t column) const;

  // Where blocks are the ranks': the blocks of a column, by node, none for
  // nodes that have no such place.
  std::vector<std::vector<int64_t>> BlocksOf(size_t column) const;
  // The blocks that `nodes` have in the columns of each place of this node, a
  // column's side by side.
  std::vector<std::vector<int64_t>> BlocksByPlace(
      std::span<const int64_t> nodes) const;
  // The most blocks that all nodes have in the columns of any one rank.
  int64_t MostBlocks() const;

 private:
  const std::vector<std::vector<int>>& nodes_;
  size_t columns_ = 0;
  size_t index_ = 0;
  size_t place_ = 0;
};

}  // namespace trnccl
