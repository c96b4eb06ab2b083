// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/spec.h"

#include <array>
#include <cstddef>

#include "ccl/base/check.h"

namespace trnccl {
namespace {

int64_t OneBlock(int64_t) { return 1; }
int64_t BlockPerRank(int64_t ranks) { return ranks; }
int64_t BlockPerPair(int64_t ranks) { return ranks * ranks; }

BlockRange Nothing(const Shape&) { return {}; }
BlockRange TheBlock(const Shape&) { return {.count = 1}; }
BlockRange OwnBlock(const Shape& shape) {
  return {.first = shape.rank, .count = 1};
}
BlockRange EveryBlock(const Shape& shape) { return {.count = shape.ranks}; }
BlockRange BlocksSent(const Shape& shape) {
  return {.first = int64_t{shape.rank} * shape.ranks, .count = shape.ranks};
}
BlockRange BlocksReceived(const Shape& shape) {
  return {.first = shape.rank, .count = shape.ranks, .stride = shape.ranks};
}
BlockRange TheBlockAtRoot(const Shape& shape) {
  return shape.rank == shape.root ? TheBlock(shape) : Nothing(shape);
}
BlockRange EveryBlockAtRoot(const Shape& shape) {
  return shape.rank == shape.root ? EveryBlock(shape) : Nothing(shape);
}

constexpr std::array<Spec, kCollectives> kSpecs = {{
    {.collective = Collective::kAllReduce,
     .reduces = true,
     .rooted = false,
     .uneven = false,
     .blocks = OneBlock,
     .input = TheBlock,
     .output = TheBlock},
    {.collective = Collective::kBroadcast,
     .reduces = false,
     .rooted = true,
     .uneven = false,
     .blocks = OneBlock,
     .input = TheBlockAtRoot,
     .output = TheBlock},
    {.collective = Collective::kReduce,
     .reduces = true,
     .rooted = true,
     .uneven = false,
     .blocks = OneBlock,
     .input = TheBlock,
     .output = TheBlockAtRoot},
    {.collective = Collective::kAllGather,
     .reduces = false,
     .rooted = false,
     .uneven = false,
     .blocks = BlockPerRank,
     .input = OwnBlock,
     .output = EveryBlock},
    {.collective = Collective::kAllGatherV,
     .reduces = false,
     .rooted = false,
     .uneven = true,
     .blocks = BlockPerRank,
     .input = OwnBlock,
     .output = EveryBlock},
    {.collective = Collective::kReduceScatter,
     .reduces = true,
     .rooted = false,
     .uneven = false,
     .blocks = BlockPerRank,
     .input = EveryBlock,
     .output = OwnBlock},
    {.collective = Collective::kReduceScatterV,
     .reduces = true,
     .rooted = false,
     .uneven = true,
     .blocks = BlockPerRank,
     .input = EveryBlock,
     .output = OwnBlock},
    {.collective = Collective::kAllToAll,
     .reduces = false,
     .rooted = false,
     .uneven = false,
     .blocks = BlockPerPair,
     .input = BlocksSent,
     .output = BlocksReceived},
    {.collective = Collective::kAllToAllV,
     .reduces = false,
     .rooted = false,
     .uneven = true,
     .blocks = BlockPerPair,
     .input = BlocksSent,
     .output = BlocksReceived},
    {.collective = Collective::kGather,
     .reduces = false,
     .rooted = true,
     .uneven = false,
     .blocks = BlockPerRank,
     .input = OwnBlock,
     .output = EveryBlockAtRoot},
    {.collective = Collective::kScatter,
     .reduces = false,
     .rooted = true,
     .uneven = false,
     .blocks = BlockPerRank,
     .input = EveryBlockAtRoot,
     .output = OwnBlock},
    {.collective = Collective::kBarrier,
     .reduces = false,
     .rooted = false,
     .uneven = false,
     .blocks = OneBlock,
     .input = Nothing,
     .output = Nothing},
}};

}  // namespace

int64_t BlockRange::PositionOf(int64_t block) const {
  if (count == 0 || block < first) return -1;
  const int64_t distance = block - first;
  if (stride == 1) return distance < count ? distance : -1;
  if (distance % stride != 0) return -1;
  const int64_t position = distance / stride;
  return position < count ? position : -1;
}

const Spec& SpecOf(Collective collective) {
  const auto index = static_cast<size_t>(collective);
  TRNCCL_CHECK(index < kSpecs.size());
  TRNCCL_CHECK(kSpecs[index].collective == collective);
  return kSpecs[index];
}

}  // namespace trnccl
