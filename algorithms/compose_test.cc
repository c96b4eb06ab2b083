// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/compose.h"

#include <string>
#include <utility>
#include <vector>

#include "algorithms/direct.h"
#include "algorithms/halving.h"
#include "algorithms/recursive_doubling.h"
#include "algorithms/ring.h"
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

TEST(Composer, PassesOnWhatTheStageCompleted) {
  const Stage stage = {.group = {4, 7},
                       .build = recursive_doubling::AllReduce,
                       .blocks = {{3}},
                       .source = StageBuffer::Output(),
                       .target = StageBuffer::Output(),
                       .values = Values::kCompleted};
  Stage halved = stage;
  halved.build = halving::AllReduce;
  halved.blocks = {{2, 3}};
  EXPECT_EQ(Compose(7, stage),
            "chunks per block 4, scratch slots 0, lanes 1\n"
            "lane 0\n"
            "  0: [3] partial output -> 4 (partial)\n"
            "  1: [3] partial from 4 + partial output => output (complete)\n");
  EXPECT_EQ(Compose(7, halved),
            "chunks per block 4, scratch slots 0, lanes 1\n"
            "lane 0\n"
            "  0: [2] partial output -> 4 (partial)\n"
            "  1: [3] partial from 4 + partial output => output (complete)\n"
            "  2: [3] output -> 4\n"
            "  3: [2] from 4 => output\n");
}

TEST(Composer, KeepsTheLanesOfItsStagesApart) {
  Composer composer(1, {.lanes = 2});
  composer.Add({.group = {0, 1},
                .build = ring::AllGather,
                .blocks = {{0}, {1}},
                .source = StageBuffer::Input(),
                .target = StageBuffer::Output()});
  composer.Add({.group = {1, 2},
                .build = direct::AllGather,
                .lane = 1,
                .blocks = {{1}, {}},
                .source = StageBuffer::Output(),
                .target = StageBuffer::Output()});
  EXPECT_EQ(Dump(std::move(composer).Finish()),
            "chunks per block 1, scratch slots 0, lanes 2\n"
            "lane 0\n"
            "  0: [0] from 0 => output\n"
            "lane 1\n"
            "  0: [1] input => output -> 0\n"
            "  1: [1] output -> 2\n");
}

}  // namespace
}  // namespace trnccl
