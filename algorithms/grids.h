// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Node grids for tests: even ones, uneven ones, and ranks that don't lie node
// after node.
//
// Thread rule: pure functions.
//
//   for (const Grid& grid : GridsToProve()) ... RanksOf(grid) ...
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/spec.h"

namespace trnccl {

// Nodes of these many ranks, numbered node after node.
inline Grid PackedGrid(std::span<const int> ranks_per_node) {
  Grid grid;
  int rank = 0;
  for (int ranks : ranks_per_node) {
    std::vector<int>& node = grid.nodes.emplace_back();
    for (int i = 0; i < ranks; ++i) node.push_back(rank++);
  }
  return grid;
}

// Ranks dealt to the nodes in turn, as a launcher may place them.
inline Grid DealtGrid(int ranks, int nodes) {
  Grid grid;
  grid.nodes.resize(static_cast<size_t>(nodes));
  for (int rank = 0; rank < ranks; ++rank) {
    grid.nodes[static_cast<size_t>(rank % nodes)].push_back(rank);
  }
  return grid;
}

inline int RanksOf(const Grid& grid) {
  size_t ranks = 0;
  for (const std::vector<int>& node : grid.nodes) ranks += node.size();
  return static_cast<int>(ranks);
}

inline std::string Describe(const Grid& grid) {
  return absl::StrJoin(grid.nodes, " | ",
                       [](std::string* out, const std::vector<int>& node) {
                         absl::StrAppend(out, absl::StrJoin(node, " "));
                       });
}

// 1x1 to 8x8 and some larger, uneven nodes, and ranks dealt over 2 and 3 nodes.
inline std::vector<Grid> GridsToProve() {
  std::vector<Grid> grids;
  for (int nodes = 1; nodes <= 8; ++nodes) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      grids.push_back(
          PackedGrid(std::vector<int>(static_cast<size_t>(nodes), ranks)));
    }
  }
  const std::vector<std::vector<int>> uneven = {{3, 2},
                                                {2, 3},
                                                {4, 1, 3},
                                                {1, 1, 1},
                                                {2, 5, 1, 8},
                                                {1, 7},
                                                {6, 4, 4},
                                                {2, 2, 2, 2, 1},
                                                {1, 2, 3, 4, 5, 6, 7},
                                                {5, 1, 1, 1, 1, 1, 1, 1, 1},
                                                std::vector<int>(16, 4),
                                                std::vector<int>(21, 3)};
  for (const std::vector<int>& nodes : uneven) {
    grids.push_back(PackedGrid(nodes));
  }
  for (int ranks : {4, 5, 7, 9, 12}) {
    grids.push_back(DealtGrid(ranks, 2));
    grids.push_back(DealtGrid(ranks, 3));
  }
  return grids;
}

}  // namespace trnccl
