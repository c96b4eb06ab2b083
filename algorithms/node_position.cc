// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/node_position.h"

#include <algorithm>

namespace trnccl {

NodePosition::NodePosition(const Shape& shape) : nodes_(shape.grid->nodes) {
  for (size_t index = 0; index < nodes_.size(); ++index) {
    columns_ = std::max(columns_, nodes_[index].size());
    const auto place = std::ranges::find(nodes_[index], shape.rank);
    if (place == nodes_[index].end()) continue;
    index_ = index;
    place_ = static_cast<size_t>(place - nodes_[index].begin());
  }
}

std::vector<size_t> NodePosition::ColumnsOf(size_t place) const {
  std::vector<size_t> columns;
  for (size_t column = place; column < columns_; column += node().size()) {
    columns.push_back(column);
  }
  return columns;
}

int64_t NodePosition::MostColumns() const {
  size_t fewest = columns_;
  for (const std::vector<int>& node : nodes_) {
    fewest = std::min(fewest, node.size());
  }
  return static_cast<int64_t>((columns_ + fewest - 1) / fewest);
}

std::vector<int> NodePosition::Column(size_t column) const {
  std::vector<int> ranks;
  for (const std::vector<int>& node : nodes_) {
    ranks.push_back(node[column % node.size()]);
  }
  return ranks;
}

std::vector<std::vector<int64_t>> NodePosition::BlocksOf(size_t column) const {
  std::vector<std::vector<int64_t>> blocks;
  for (const std::vector<int>& node : nodes_) {
    blocks.emplace_back();
    if (column < node.size()) blocks.back().push_back(node[column]);
  }
  return blocks;
}

std::vector<std::vector<int64_t>> NodePosition::BlocksByPlace(
    std::span<const int64_t> nodes) const {
  std::vector<std::vector<int64_t>> by_place;
  for (size_t place = 0; place < node().size(); ++place) {
    std::vector<int64_t>& blocks = by_place.emplace_back();
    for (size_t column : ColumnsOf(place)) {
      for (const int64_t index : nodes) {
        const std::vector<int>& other = nodes_[static_cast<size_t>(index)];
        if (column < other.size()) blocks.push_back(other[column]);
      }
    }
  }
  return by_place;
}

int64_t NodePosition::MostBlocks() const {
  int64_t most = 0;
  for (const std::vector<int>& node : nodes_) {
    int64_t blocks = 0;  // of place 0, which stands in the fullest columns
    for (size_t column = 0; column < columns_; column += node.size()) {
      for (const auto& other : nodes_) blocks += column < other.size() ? 1 : 0;
    }
    most = std::max(most, blocks);
  }
  return most;
}

}  // namespace trnccl
