// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Hierarchical: within the nodes first and last, across them in between. Ranks
// of the same place in their nodes are a column; columns work side by side.
//
//      node 0     node 1     node 2
//      [ 0 ------- 2 ------- 4 ]   column 0      all_reduce: reduce_scatter in
//        |         |         |                   the node, reduce_scatter and
//      [ 1 ------- 3 ------- 5 ]   column 1      all_gather in the column,
//                                                all_gather in the node
//
// A node with fewer ranks than the largest has its ranks stand in several
// columns, place % ranks. N nodes of m ranks, n = N * m:
//
//                   rounds               a rank sends, of it to other nodes
//   all_reduce      2 + 2 ceil(log2 N)   2 (n-1)/n B   2 (N-1)/n B
//   reduce_scatter  2                    (n-1) B       (N-1) B
//   all_gather      1 + ceil(log2 N)     (n-1) B       (N-1) B
//   broadcast       1 + floor(log2 N)    (ceil(log2 N) + m-1) B, ceil(log2 N) B
//   reduce          1 + floor(log2 N)    B             B
//
// B is a block: the whole of all_reduce, broadcast and reduce, a rank's part
// of the others. Within nodes all is direct; across it's PAT or binomial, and
// direct for reduce_scatter, which sends no more that way.
#include "algorithms/hierarchical.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "algorithms/binomial.h"
#include "algorithms/compose.h"
#include "algorithms/direct.h"
#include "algorithms/pat.h"

namespace trnccl::hierarchical {
namespace {

using Values = Stage::Values;

// Where a rank stands in the grid.
class Position {
 public:
  explicit Position(const Shape& shape) : nodes_(shape.grid->nodes) {
    for (size_t node = 0; node < nodes_.size(); ++node) {
      columns_ = std::max(columns_, nodes_[node].size());
      const auto place = std::ranges::find(nodes_[node], shape.rank);
      if (place == nodes_[node].end()) continue;
      node_ = node;
      place_ = static_cast<size_t>(place - nodes_[node].begin());
    }
  }

  size_t nodes() const { return nodes_.size(); }
  size_t columns() const { return columns_; }
  size_t place() const { return place_; }
  const std::vector<int>& node() const { return nodes_[node_]; }

  // The columns in which the rank at a place of this node stands.
  std::vector<size_t> ColumnsOf(size_t place) const {
    std::vector<size_t> columns;
    for (size_t c = place; c < columns_; c += node().size()) {
      columns.push_back(c);
    }
    return columns;
  }

  // Who stands in the column, by node.
  std::vector<int> Column(size_t column) const {
    std::vector<int> ranks;
    for (const std::vector<int>& node : nodes_) {
      ranks.push_back(node[column % node.size()]);
    }
    return ranks;
  }

  // Where blocks are the ranks': the blocks of a column, by node, none for
  // nodes that have no such place.
  std::vector<std::vector<int64_t>> BlocksOf(size_t column) const {
    std::vector<std::vector<int64_t>> blocks;
    for (const std::vector<int>& node : nodes_) {
      blocks.emplace_back();
      if (column < node.size()) blocks.back().push_back(node[column]);
    }
    return blocks;
  }

  // The blocks of all columns in which the rank at a place of this node
  // stands, a column's side by side.
  std::vector<int64_t> BlocksAt(size_t place) const {
    std::vector<int64_t> all;
    for (size_t column : ColumnsOf(place)) {
      for (const auto& blocks : BlocksOf(column)) {
        all.insert(all.end(), blocks.begin(), blocks.end());
      }
    }
    return all;
  }
  std::vector<std::vector<int64_t>> BlocksOfNode() const {
    std::vector<std::vector<int64_t>> blocks;
    for (size_t place = 0; place < node().size(); ++place) {
      blocks.push_back(BlocksAt(place));
    }
    return blocks;
  }

  // The most blocks that any rank of any node has at its place.
  int64_t MostBlocks() const {
    int64_t most = 0;
    for (const std::vector<int>& node : nodes_) {
      int64_t blocks = 0;  // of place 0, which stands in the fullest columns
      for (size_t c = 0; c < columns_; c += node.size()) {
        for (const auto& other : nodes_) blocks += c < other.size() ? 1 : 0;
      }
      most = std::max(most, blocks);
    }
    return most;
  }

 private:
  const std::vector<std::vector<int>>& nodes_;
  size_t columns_ = 0;
  size_t node_ = 0;
  size_t place_ = 0;
};

// The leaders of all nodes: the root, and each other node's first rank.
struct Leaders {
  std::vector<int> ranks;  // by node
  int root_node = 0;
  int own = 0;           // the leader of this rank's node
  int place_of_own = 0;  // in that node
};

Leaders LeadersOf(const Shape& shape) {
  Leaders leaders;
  for (const std::vector<int>& node : shape.grid->nodes) {
    int leader = node.front();
    if (std::ranges::count(node, shape.root) > 0) {
      leader = shape.root;
      leaders.root_node = static_cast<int>(leaders.ranks.size());
    }
    if (std::ranges::count(node, shape.rank) > 0) {
      leaders.own = leader;
      leaders.place_of_own =
          static_cast<int>(std::ranges::find(node, leader) - node.begin());
    }
    leaders.ranks.push_back(leader);
  }
  return leaders;
}

}  // namespace

bool HasNodes(const Shape& shape) {
  return shape.grid != nullptr && shape.grid->nodes.size() > 1;
}

// Every column has as many chunks as there are nodes.
Program AllReduce(const Shape& shape) {
  const Position position(shape);
  const auto nodes = static_cast<int64_t>(position.nodes());
  std::vector<std::vector<std::vector<int64_t>>> columns(position.columns());
  for (size_t column = 0; column < columns.size(); ++column) {
    for (int64_t node = 0; node < nodes; ++node) {
      columns[column].push_back({static_cast<int64_t>(column) * nodes + node});
    }
  }
  std::vector<std::vector<int64_t>> in_node(position.node().size());
  for (size_t place = 0; place < in_node.size(); ++place) {
    for (size_t column : position.ColumnsOf(place)) {
      for (const auto& chunks : columns[column]) {
        in_node[place].push_back(chunks.front());
      }
    }
  }
  Composer composer(
      shape.rank,
      {.chunks_per_block = nodes * static_cast<int64_t>(columns.size())});
  composer.Add({.group = position.node(),
                .build = direct::ReduceScatter,
                .blocks = in_node,
                .source = StageBuffer::Input(),
                .target = StageBuffer::Output(),
                .values = Values::kFolded});
  // Column by column: having gathered one, all have read what was sent from
  // the slots that the next one uses.
  for (size_t column : position.ColumnsOf(position.place())) {
    composer.Add({.group = position.Column(column),
                  .build = pat::ReduceScatter,
                  .blocks = columns[column],
                  .source = StageBuffer::Output(),
                  .target = StageBuffer::Output(),
                  .values = Values::kCompleted});
    composer.Add({.group = position.Column(column),
                  .build = pat::AllGather,
                  .blocks = columns[column],
                  .source = StageBuffer::Output(),
                  .target = StageBuffer::Output()});
  }
  composer.Add({.group = position.node(),
                .build = direct::AllGather,
                .blocks = in_node,
                .source = StageBuffer::Output(),
                .target = StageBuffer::Output()});
  return std::move(composer).Finish();
}

Program ReduceScatter(const Shape& shape) {
  const Position position(shape);
  const StageBuffer columns = {.buffer = Buffer::kScratch,
                               .slots = position.BlocksAt(position.place())};
  Composer composer(shape.rank, {.slots = position.MostBlocks()});
  composer.Add({.group = position.node(),
                .build = direct::ReduceScatter,
                .blocks = position.BlocksOfNode(),
                .source = StageBuffer::Input(),
                .target = columns,
                .values = Values::kFolded});
  for (size_t column : position.ColumnsOf(position.place())) {
    composer.Add({.group = position.Column(column),
                  .build = direct::ReduceScatter,
                  .blocks = position.BlocksOf(column),
                  .source = columns,
                  .target = StageBuffer::Output(),
                  .values = Values::kCompleted});
  }
  return std::move(composer).Finish();
}

Program AllGather(const Shape& shape) {
  const Position position(shape);
  Composer composer(shape.rank, {});
  for (size_t column : position.ColumnsOf(position.place())) {
    composer.Add({.group = position.Column(column),
                  .build = pat::AllGather,
                  .blocks = position.BlocksOf(column),
                  .source = StageBuffer::Input(),
                  .target = StageBuffer::Output()});
  }
  composer.Add({.group = position.node(),
                .build = direct::AllGather,
                .blocks = position.BlocksOfNode(),
                .source = StageBuffer::Output(),
                .target = StageBuffer::Output()});
  return std::move(composer).Finish();
}

Program Broadcast(const Shape& shape) {
  const Leaders leaders = LeadersOf(shape);
  Composer composer(shape.rank, {});
  composer.Add({.group = leaders.ranks,
                .root = leaders.root_node,
                .build = binomial::Broadcast,
                .blocks = {{0}},
                .source = StageBuffer::Input(),
                .target = StageBuffer::Output()});
  composer.Add({.group = Position(shape).node(),
                .root = leaders.place_of_own,
                .build = direct::Broadcast,
                .blocks = {{0}},
                .source = StageBuffer::Output(),
                .target = StageBuffer::Output()});
  return std::move(composer).Finish();
}

// A node's fold lies in scratch: only the root has an output.
Program Reduce(const Shape& shape) {
  const Leaders leaders = LeadersOf(shape);
  const StageBuffer of_node = {.buffer = Buffer::kScratch, .slots = {0}};
  Composer composer(shape.rank, {.slots = 1});
  composer.Add({.group = Position(shape).node(),
                .root = leaders.place_of_own,
                .build = direct::Reduce,
                .blocks = {{0}},
                .source = StageBuffer::Input(),
                .target = of_node,
                .values = Values::kFolded});
  composer.Add({.group = leaders.ranks,
                .root = leaders.root_node,
                .build = binomial::Reduce,
                .blocks = {{0}},
                .source = of_node,
                .target = StageBuffer::Output(),
                .values = Values::kCompleted});
  return std::move(composer).Finish();
}

}  // namespace trnccl::hierarchical
