// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Hierarchical: within the nodes first and last, across them in between. Ranks
// of the same place in their nodes are a column; columns work side by side.
//
//      node 0     node 1     node 2
//      [ 0 ------- 2 ------- 4 ]   column 0      all_reduce: reduce_scatter in
//        |         |         |                   the node, all_reduce in the
//      [ 1 ------- 3 ------- 5 ]   column 1      column, all_gather in the node
//
// A node with fewer ranks than the largest has its ranks stand in several
// columns. Within nodes all is direct, on the lanes of the family across and in
// batches as long as its messages: ceil(N / 2) of a chunk on either lane of a
// ring, two or three of half the chunks for halving and pat, one else; N for
// direct. N nodes of m ranks, n = N * m:
//
//   across               rounds, of them across    a rank sends to other nodes
//   all_reduce
//     ring               2 (N-1)                   2 (N-1)/n B
//     halving, pat       2 ceil(log2 N)            2 (N-1)/n B
//     tree               2 floor(log2 N)           2/m B
//     doubling           log2 N                    log2 N / m B
//   reduce_scatter, all_gather
//     direct             1                         (N-1) B
//     ring               N-1                       (N-1) B
//     pat                ceil(log2 N)              (N-1) B
//   broadcast, reduce    (of the leaders: the root, others' first ranks)
//     binomial           floor(log2 N)             ceil(log2 N) B, B
//     chain              N-1                       B
//     scatter_gather     floor + ceil(log2 N),     2 (N-1)/N B
//                        1 + ceil(log2 N)          B
//
// In the node comes a round for each batch, twice for all_reduce, once else. B
// is a block: the whole of all_reduce, broadcast and reduce, a rank's part of
// the others. doubling is recursive doubling, with up to two more rounds and a
// block more where N isn't a power of two. What a whole node sends of an
// all_reduce is the least it can, 2 (N-1)/N B, by ring, halving and pat,
// however many ranks it has.
#include "algorithms/hierarchical.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "algorithms/binomial.h"
#include "algorithms/compose.h"
#include "algorithms/direct.h"
#include "algorithms/halving.h"
#include "algorithms/node_position.h"

namespace trnccl::hierarchical {
namespace {

using Values = Stage::Values;
using Chunks = std::vector<int64_t>;

// What this rank does in each of its columns.
Program InColumn(Builder across, const NodePosition& position) {
  return across({.ranks = static_cast<int>(position.nodes()),
                 .rank = static_cast<int>(position.index())});
}

// Chunks that travel together in the node, on one lane.
struct Batch {
  int lane = 0;
  Chunks chunks;
};

// The chunks of a column in batches as long as the longest message across, so
// that both fill a slice. Lane by lane, in the order in which its steps first
// name them: so what a step reads from slots that are laid out so lies side by
// side.
std::vector<Batch> BatchesOf(const Program& in_column, int64_t total) {
  const auto longest = static_cast<size_t>(MostChunksPerMessage(in_column));
  std::vector<Batch> batches;
  std::vector<bool> seen(static_cast<size_t>(total));
  for (size_t lane = 0; lane < in_column.lanes.size(); ++lane) {
    size_t room = 0;
    for (const Step& step : in_column.lanes[lane].steps) {
      ForEachChunk(step, total, [&](int64_t chunk) {
        if (seen[static_cast<size_t>(chunk)]) return;
        seen[static_cast<size_t>(chunk)] = true;
        if (room == 0) {
          batches.push_back({.lane = static_cast<int>(lane)});
          room = longest;
        }
        batches.back().chunks.push_back(chunk);
        --room;
      });
    }
  }
  return batches;
}

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

Stage AmongLeaders(const Leaders& leaders, Builder build) {
  return {.group = leaders.ranks, .root = leaders.root_node, .build = build};
}
Stage InNodeOf(const Leaders& leaders, const Shape& shape, Builder build) {
  return {.group = NodePosition(shape).node(),
          .root = leaders.place_of_own,
          .build = build};
}

// One chunk for each node.
Chunks ChunkPerNode(const Leaders& leaders) {
  Chunks chunks(leaders.ranks.size());
  std::iota(chunks.begin(), chunks.end(), 0);
  return chunks;
}
std::vector<Chunks> BlockPerNode(const Leaders& leaders) {
  std::vector<Chunks> blocks;
  for (const int64_t chunk : ChunkPerNode(leaders)) blocks.push_back({chunk});
  return blocks;
}

}  // namespace

bool HasNodes(const Shape& shape) {
  return shape.grid != nullptr && shape.grid->nodes.size() > 1;
}

bool HasLevels(const Shape& shape) {
  return HasNodes(shape) &&
         shape.grid->nodes.size() < static_cast<size_t>(shape.ranks);
}

// Every column has as many chunks as the family across cuts a block into.
Program AllReduceBy(Builder across, const Shape& shape) {
  const NodePosition position(shape);
  const Program in_column = InColumn(across, position);
  const int64_t cut = in_column.chunks_per_block;
  Composer composer(
      shape.rank,
      {.chunks_per_block = cut * static_cast<int64_t>(position.columns()),
       .lanes = in_column.lanes.size(),
       .own_slots = in_column.scratch_slots});
  const auto add_in_node = [&](Stage stage) {
    stage.group = position.node();
    for (const Batch& batch : BatchesOf(in_column, cut)) {
      stage.lane = batch.lane;
      stage.blocks.clear();
      for (size_t place = 0; place < position.node().size(); ++place) {
        Chunks& chunks = stage.blocks.emplace_back();
        for (const size_t column : position.ColumnsOf(place)) {
          for (const int64_t chunk : batch.chunks) {
            chunks.push_back(static_cast<int64_t>(column) * cut + chunk);
          }
        }
      }
      composer.Add(stage);
    }
  };
  add_in_node({.build = direct::ReduceScatter,
               .source = StageBuffer::Input(),
               .target = StageBuffer::Output(),
               .values = Values::kFolded});
  // Column by column: having gathered one, all have read what was sent from
  // the slots that the next one uses.
  for (const size_t column : position.ColumnsOf(position.place())) {
    Chunks chunks(static_cast<size_t>(cut));
    std::iota(chunks.begin(), chunks.end(), static_cast<int64_t>(column) * cut);
    composer.Add({.group = position.Column(column),
                  .build = across,
                  .blocks = {chunks},
                  .source = StageBuffer::Output(),
                  .target = StageBuffer::Output(),
                  .values = Values::kCompleted});
  }
  add_in_node({.build = direct::AllGather,
               .source = StageBuffer::Output(),
               .target = StageBuffer::Output()});
  return std::move(composer).Finish();
}

// A chunk of a column is here a node's block.
Program ReduceScatterBy(Builder across, const Shape& shape) {
  const NodePosition position(shape);
  const Program in_column = InColumn(across, position);
  const std::vector<Batch> batches =
      BatchesOf(in_column, static_cast<int64_t>(position.nodes()));
  StageBuffer columns = {.buffer = Buffer::kScratch};
  for (const Batch& batch : batches) {
    const Chunks own = position.BlocksByPlace(batch.chunks)[position.place()];
    columns.slots.insert(columns.slots.end(), own.begin(), own.end());
  }
  Composer composer(shape.rank, {.lanes = in_column.lanes.size(),
                                 .slots = position.MostBlocks(),
                                 .own_slots = in_column.scratch_slots *
                                              position.MostColumns()});
  for (const Batch& batch : batches) {
    composer.Add({.group = position.node(),
                  .build = direct::ReduceScatter,
                  .lane = batch.lane,
                  .blocks = position.BlocksByPlace(batch.chunks),
                  .source = StageBuffer::Input(),
                  .target = columns,
                  .values = Values::kFolded});
  }
  // Each column has slots of its own: what one sends may still be read.
  int64_t first_own_slot = 0;
  for (const size_t column : position.ColumnsOf(position.place())) {
    composer.Add({.group = position.Column(column),
                  .build = across,
                  .blocks = position.BlocksOf(column),
                  .source = columns,
                  .target = StageBuffer::Output(),
                  .values = Values::kCompleted,
                  .first_own_slot = first_own_slot});
    first_own_slot += in_column.scratch_slots;
  }
  return std::move(composer).Finish();
}

Program AllGatherBy(Builder across, const Shape& shape) {
  const NodePosition position(shape);
  const Program in_column = InColumn(across, position);
  Composer composer(shape.rank, {.lanes = in_column.lanes.size()});
  for (const size_t column : position.ColumnsOf(position.place())) {
    composer.Add({.group = position.Column(column),
                  .build = across,
                  .blocks = position.BlocksOf(column),
                  .source = StageBuffer::Input(),
                  .target = StageBuffer::Output()});
  }
  for (const Batch& batch :
       BatchesOf(in_column, static_cast<int64_t>(position.nodes()))) {
    composer.Add({.group = position.node(),
                  .build = direct::AllGather,
                  .lane = batch.lane,
                  .blocks = position.BlocksByPlace(batch.chunks),
                  .source = StageBuffer::Output(),
                  .target = StageBuffer::Output()});
  }
  return std::move(composer).Finish();
}

Program BroadcastBy(Builder across, const Shape& shape) {
  const Leaders leaders = LeadersOf(shape);
  Composer composer(shape.rank, {});
  Stage stage = AmongLeaders(leaders, across);
  stage.blocks = {{0}};
  stage.source = StageBuffer::Input();
  stage.target = StageBuffer::Output();
  composer.Add(stage);
  stage = InNodeOf(leaders, shape, direct::Broadcast);
  stage.blocks = {{0}};
  stage.source = stage.target = StageBuffer::Output();
  composer.Add(stage);
  return std::move(composer).Finish();
}

Program BroadcastScatterGather(const Shape& shape) {
  const Leaders leaders = LeadersOf(shape);
  const Chunks chunks = ChunkPerNode(leaders);
  Composer composer(
      shape.rank,
      {.chunks_per_block = static_cast<int64_t>(chunks.size()),
       .own_slots = binomial::Scatter({.ranks = static_cast<int>(chunks.size()),
                                       .root = leaders.root_node})
                        .scratch_slots});
  Stage stage = AmongLeaders(leaders, binomial::Scatter);
  stage.blocks = BlockPerNode(leaders);
  stage.source = StageBuffer::Input();
  stage.target = StageBuffer::Output();
  composer.Add(stage);
  stage.build = halving::AllGather;
  stage.source = StageBuffer::Output();
  composer.Add(stage);
  stage = InNodeOf(leaders, shape, direct::Broadcast);
  stage.blocks = {chunks};
  stage.source = stage.target = StageBuffer::Output();
  composer.Add(stage);
  return std::move(composer).Finish();
}

// A node's fold lies in scratch: only the root has an output.
Program ReduceBy(Builder across, const Shape& shape) {
  const Leaders leaders = LeadersOf(shape);
  Composer composer(shape.rank, {.slots = 1});
  Stage stage = InNodeOf(leaders, shape, direct::Reduce);
  stage.blocks = {{0}};
  stage.source = StageBuffer::Input();
  stage.target = {.buffer = Buffer::kScratch, .slots = {0}};
  stage.values = Values::kFolded;
  composer.Add(stage);
  const StageBuffer of_node = stage.target;
  stage = AmongLeaders(leaders, across);
  stage.blocks = {{0}};
  stage.source = of_node;
  stage.target = StageBuffer::Output();
  stage.values = Values::kCompleted;
  composer.Add(stage);
  return std::move(composer).Finish();
}

Program ReduceScatterGather(const Shape& shape) {
  const Leaders leaders = LeadersOf(shape);
  const Program scatter = InColumn(halving::ReduceScatter, NodePosition(shape));
  const auto nodes = static_cast<int64_t>(leaders.ranks.size());
  Chunks chunks;
  for (const Batch& batch : BatchesOf(scatter, nodes)) {
    chunks.insert(chunks.end(), batch.chunks.begin(), batch.chunks.end());
  }
  const StageBuffer folds = {.buffer = Buffer::kScratch, .slots = chunks};
  Composer composer(shape.rank, {.chunks_per_block = nodes,
                                 .slots = nodes,
                                 .own_slots = scatter.scratch_slots});
  Stage stage = InNodeOf(leaders, shape, direct::Reduce);
  stage.blocks = {chunks};
  stage.source = StageBuffer::Input();
  stage.target = folds;
  stage.values = Values::kFolded;
  composer.Add(stage);
  stage = AmongLeaders(leaders, halving::ReduceScatter);
  stage.blocks = BlockPerNode(leaders);
  stage.source = stage.target = folds;
  stage.values = Values::kCompleted;
  composer.Add(stage);
  stage.build = direct::Gather;
  stage.target = StageBuffer::Output();
  stage.values = Values::kPassed;
  composer.Add(stage);
  return std::move(composer).Finish();
}

}  // namespace trnccl::hierarchical
