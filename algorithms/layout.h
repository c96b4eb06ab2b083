// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Where chunks lie and how many elements they have, for one segment of one
// call. The only place that turns a chunk number into elements.
//
// A block of `count` elements is cut into segments of `segment_count` elements
// (the last is shorter, blocks of different counts run out at different
// segments); the part of a block in a segment is cut into chunks_per_block
// chunks: each has part / chunks, the first part % chunks one more. No product
// here can overflow: everything is bounded by the buffer's own elements.
//
// Thread rule: plain values, pure functions.
//
//   BufferLayout output(spec.output(shape), BlockCounts::Even(1000), 4);
//   Extent extent = output.Find(chunk, {.index = 0, .segment_count = 256});
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl {

// The elements of each block of one buffer. Even: every block alike, one after
// the other. Uneven: counts[position], at offsets[position] of the buffer.
// The spans are borrowed and must outlive the use.
struct BlockCounts {
  static BlockCounts Even(int64_t count) { return {.even_count = count}; }

  int64_t even_count = 0;
  std::span<const int64_t> counts;   // empty: even
  std::span<const int64_t> offsets;  // empty: packed back to back
};

// Elements [offset, offset + count) of a buffer.
struct Extent {
  int64_t offset = 0;
  int64_t count = 0;

  bool operator==(const Extent&) const = default;
};

struct Segment {
  int64_t index = 0;
  int64_t segment_count = 0;  // elements of a block per segment
};

// Segments needed for blocks of at most `largest_block` elements; at least 1,
// so that empty calls still exchange their (empty) messages.
int64_t SegmentsFor(int64_t largest_block, int64_t segment_count);

// The part of a block of `block_count` elements that chunk `part` (of
// chunks_per_block) has in the segment, relative to the block's start.
struct BlockPart {
  int64_t block_count = 0;
  int64_t chunks_per_block = 1;
  int64_t part = 0;
};
Extent ExtentInBlock(const BlockPart& part, const Segment& segment);

// One buffer of one rank: which blocks it holds, and where they lie.
class BufferLayout {
 public:
  BufferLayout(BlockRange blocks, BlockCounts counts, int64_t chunks_per_block);

  // The chunk's elements in this buffer. The buffer must hold its block.
  Extent Find(int64_t chunk, const Segment& segment) const;
  bool Holds(int64_t chunk) const;

 private:
  BlockRange blocks_;
  BlockCounts counts_;
  int64_t chunks_per_block_;
  std::vector<int64_t> packed_offsets_;  // uneven without offsets
};

}  // namespace trnccl
