// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/layout.h"

#include <algorithm>

#include "ccl/base/check.h"

namespace trnccl {

int64_t SegmentsFor(int64_t largest_block, int64_t segment_count) {
  if (largest_block <= 0) return 1;
  TRNCCL_CHECK(segment_count > 0);
  return (largest_block - 1) / segment_count + 1;
}

Extent ExtentInBlock(const BlockPart& part, const Segment& segment) {
  if (part.block_count == 0) return {};
  TRNCCL_CHECK(segment.segment_count > 0);
  // Compared by division: a block that has run out must not overflow here.
  if (segment.index > part.block_count / segment.segment_count) {
    return {.offset = part.block_count};
  }
  const int64_t start = segment.index * segment.segment_count;
  const int64_t elements =
      std::min(segment.segment_count, part.block_count - start);
  const int64_t smaller = elements / part.chunks_per_block;
  const int64_t larger_parts = elements % part.chunks_per_block;
  return {
      .offset = start + part.part * smaller + std::min(part.part, larger_parts),
      .count = smaller + (part.part < larger_parts ? 1 : 0)};
}

BufferLayout::BufferLayout(BlockRange blocks, BlockCounts counts,
                           int64_t chunks_per_block)
    : blocks_(blocks), counts_(counts), chunks_per_block_(chunks_per_block) {
  if (counts_.counts.empty() || !counts_.offsets.empty()) return;
  packed_offsets_.reserve(counts_.counts.size());
  int64_t offset = 0;
  for (int64_t count : counts_.counts) {
    packed_offsets_.push_back(offset);
    offset += count;
  }
}

Extent BufferLayout::Find(int64_t chunk, const Segment& segment) const {
  const int64_t position = blocks_.PositionOf(chunk / chunks_per_block_);
  TRNCCL_CHECK(position >= 0);
  int64_t block_count = counts_.even_count;
  int64_t block_offset = 0;
  if (counts_.counts.empty()) {
    block_offset = position * block_count;
  } else {
    const auto index = static_cast<size_t>(position);
    block_count = counts_.counts[index];
    block_offset = counts_.offsets.empty() ? packed_offsets_[index]
                                           : counts_.offsets[index];
  }
  Extent extent = ExtentInBlock({.block_count = block_count,
                                 .chunks_per_block = chunks_per_block_,
                                 .part = chunk % chunks_per_block_},
                                segment);
  extent.offset += block_offset;
  return extent;
}

bool BufferLayout::Holds(int64_t chunk) const {
  return blocks_.PositionOf(chunk / chunks_per_block_) >= 0;
}

}  // namespace trnccl
