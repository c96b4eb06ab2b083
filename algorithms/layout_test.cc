// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/layout.h"

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

// All segments' chunks in the order of addresses.
std::vector<Extent> ChunksOf(int64_t block_count, int64_t chunks_per_block,
                             int64_t segment_count) {
  std::vector<Extent> extents;
  for (int64_t s = 0; s < SegmentsFor(block_count, segment_count); ++s) {
    for (int64_t part = 0; part < chunks_per_block; ++part) {
      extents.push_back(ExtentInBlock({block_count, chunks_per_block, part},
                                      {s, segment_count}));
    }
  }
  return extents;
}

TEST(Layout, SegmentsAndChunksCoverEachBlockExactlyOnce) {
  for (int64_t count : {0, 1, 2, 3, 7, 16, 17, 100, 101}) {
    for (int64_t chunks : {1, 2, 3, 5, 8, 16, 200}) {
      for (int64_t segment_count : {1, 2, 3, 16, 17, 100, 1000}) {
        SCOPED_TRACE(testing::Message()
                     << count << " elements, " << chunks << " chunks, "
                     << segment_count << " elements a segment");
        int64_t next = 0;
        for (const Extent& extent : ChunksOf(count, chunks, segment_count)) {
          ASSERT_EQ(extent.offset, next);
          next += extent.count;
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(Layout, ChunksOfASegmentDifferByAtMostOneElement) {
  const std::array<int64_t, 4> expected = {3, 3, 2, 2};
  for (int64_t part = 0; part < 4; ++part) {
    EXPECT_EQ(ExtentInBlock({10, 4, part}, {0, 100}).count, expected[part]);
  }
}

TEST(Layout, HugeBlocksDoNotOverflow) {
  for (int64_t count :
       {int64_t{1} << 31, (int64_t{1} << 32) + 1, (int64_t{1} << 40) + 7,
        std::numeric_limits<int64_t>::max()}) {
    SCOPED_TRACE(count);
    for (int64_t chunks : {1, 3, 1000}) {
      const int64_t segment_count = (int64_t{1} << 30) + 11;
      const int64_t last = SegmentsFor(count, segment_count) - 1;
      int64_t next = last * segment_count;
      for (int64_t part = 0; part < chunks; ++part) {
        const Extent extent =
            ExtentInBlock({count, chunks, part}, {last, segment_count});
        ASSERT_EQ(extent.offset, next);
        next += extent.count;
      }
      EXPECT_EQ(next, count);
    }
    // In one segment.
    const Extent extent = ExtentInBlock({count, 7, 6}, {0, count});
    EXPECT_EQ(extent.offset + extent.count, count);
  }
}

TEST(Layout, AShortBlockHasNothingInLaterSegments) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ExtentInBlock({5, 2, 1}, {3, 4}), (Extent{5, 0}));
  EXPECT_EQ(ExtentInBlock({5, 2, 1}, {huge, huge}), (Extent{5, 0}));
  EXPECT_EQ(ExtentInBlock({8, 2, 0}, {2, 4}), (Extent{8, 0}));
}

TEST(Layout, AnEmptyCallHasOneSegment) {
  EXPECT_EQ(SegmentsFor(0, 0), 1);
  EXPECT_EQ(SegmentsFor(0, 16), 1);
  EXPECT_EQ(SegmentsFor(16, 16), 1);
  EXPECT_EQ(SegmentsFor(17, 16), 2);
  EXPECT_EQ(ExtentInBlock({0, 4, 3}, {0, 0}), Extent{});
}

TEST(BufferLayout, EvenBlocksLieByPosition) {
  // Blocks 2, 6, 10 of 5 elements, 2 chunks each.
  const BufferLayout layout({.first = 2, .count = 3, .stride = 4},
                            BlockCounts::Even(5), 2);
  const Segment whole = {.index = 0, .segment_count = 5};
  EXPECT_EQ(layout.Find(2 * 2, whole), (Extent{0, 3}));
  EXPECT_EQ(layout.Find(6 * 2 + 1, whole), (Extent{8, 2}));
  EXPECT_EQ(layout.Find(10 * 2, whole), (Extent{10, 3}));
  EXPECT_TRUE(layout.Holds(10 * 2 + 1));
  EXPECT_FALSE(layout.Holds(14 * 2));
  EXPECT_FALSE(layout.Holds(3 * 2));
  EXPECT_FALSE(layout.Holds(0));
}

TEST(BufferLayout, EvenBlocksOfHugeBuffers) {
  const int64_t count = int64_t{1} << 40;
  const BufferLayout layout({.count = 1000}, BlockCounts::Even(count), 1);
  EXPECT_EQ(layout.Find(999, {0, count}), (Extent{999 * count, count}));
}

TEST(BufferLayout, UnevenBlocksArePackedUnlessOffsetsSayOtherwise) {
  const std::vector<int64_t> counts = {3, 0, 5};
  const std::vector<int64_t> offsets = {10, 20, 30};
  const Segment segment = {.index = 1, .segment_count = 2};
  const BufferLayout packed({.count = 3}, {.counts = counts}, 1);
  EXPECT_EQ(packed.Find(0, segment), (Extent{2, 1}));
  EXPECT_EQ(packed.Find(1, segment), (Extent{3, 0}));
  EXPECT_EQ(packed.Find(2, segment), (Extent{5, 2}));
  const BufferLayout placed({.count = 3},
                            {.counts = counts, .offsets = offsets}, 1);
  EXPECT_EQ(placed.Find(0, segment), (Extent{12, 1}));
  EXPECT_EQ(placed.Find(1, segment), (Extent{20, 0}));
  EXPECT_EQ(placed.Find(2, segment), (Extent{32, 2}));
}

TEST(BufferLayout, EqualChunksHaveEqualCountsInEveryBuffer) {
  const std::vector<int64_t> all = {3, 0, 5, 9};
  const std::vector<int64_t> own = {9};
  const BufferLayout input({.first = 3, .count = 1}, {.counts = own}, 4);
  const BufferLayout output({.count = 4}, {.counts = all}, 4);
  for (int64_t chunk = 12; chunk < 16; ++chunk) {
    for (int64_t s = 0; s < SegmentsFor(9, 4); ++s) {
      EXPECT_EQ(input.Find(chunk, {s, 4}).count,
                output.Find(chunk, {s, 4}).count);
    }
  }
}

}  // namespace
}  // namespace trnccl
