// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/compose.h"

#include <string>
#include <utility>
#include <vector>

#include "algorithms/direct.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using Values = Stage::Values;

// Ranks 5 and 3 reduce-scatter the chunks {0, 2} and {1, 3}.
Stage ReduceScatterOf5And3(Values values) {
  return {.group = {5, 3},
          .build = direct::ReduceScatter,
          .blocks = {{0, 2}, {1, 3}},
          .source = StageBuffer::Input(),
          .target = StageBuffer::Output(),
          .values = values};
}

std::string Compose(int rank, const Stage& stage, int64_t slots = 0) {
  Composer composer(rank, {.chunks_per_block = 4, .slots = slots});
  composer.Add(stage);
  return Dump(std::move(composer).Finish());
}

TEST(Composer, RenamesRanksAndChunksAndMarksWhatIsPartialInTheWhole) {
  EXPECT_EQ(Compose(5, ReduceScatterOf5And3(Values::kFolded)),
            "chunks per block 4, scratch slots 0, lanes 1\n"
            "lane 0\n"
            "  0: [1 x2 by 2] input -> 3\n"
            "  1: [0 x2 by 2] input + from 3 => output (partial)\n");
}

TEST(Composer, MarksEverythingPartialUntilTheLastFold) {
  Stage stage = ReduceScatterOf5And3(Values::kCompleted);
  stage.source = StageBuffer::Output();
  EXPECT_EQ(Compose(3, stage),
            "chunks per block 4, scratch slots 0, lanes 1\n"
            "lane 0\n"
            "  0: [0 x2 by 2] partial output -> 5 (partial)\n"
            "  1: [1 x2 by 2] partial from 5 + partial output => output "
            "(complete)\n");
}

TEST(Composer, LeavesOutRanksOutsideTheGroupAndEmptyBlocks) {
  const std::string nothing =
      "chunks per block 4, scratch slots 0, lanes 1\nlane 0\n";
  EXPECT_EQ(Compose(0, ReduceScatterOf5And3(Values::kFolded)), nothing);
  Stage stage = ReduceScatterOf5And3(Values::kFolded);
  stage.blocks = {{0}, {}};
  EXPECT_EQ(Compose(3, stage),
            "chunks per block 4, scratch slots 0, lanes 1\n"
            "lane 0\n"
            "  0: [0] input -> 5\n");
}

TEST(Composer, LeavesOutCopiesOntoThemselves) {
  const Stage stage = {.group = {1},
                       .build = direct::AllGather,
                       .blocks = {{0, 1, 2, 3}},
                       .source = StageBuffer::Output(),
                       .target = StageBuffer::Output()};
  EXPECT_EQ(Compose(1, stage),
            "chunks per block 4, scratch slots 0, lanes 1\nlane 0\n");
}

TEST(Composer, KeepsAStagesResultInTheSlotsGiven) {
  Stage stage = ReduceScatterOf5And3(Values::kFolded);
  stage.target = {.buffer = Buffer::kScratch, .slots = {2, 1, 3}};
  EXPECT_EQ(Compose(3, stage, 3),
            "chunks per block 4, scratch slots 3, lanes 1\n"
            "lane 0\n"
            "  0: [0 x2 by 2] input -> 5\n"
            "  1: [1 x2 by 2] from 5 + input => slot 1 (partial)\n");
}

}  // namespace
}  // namespace trnccl
