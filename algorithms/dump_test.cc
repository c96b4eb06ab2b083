// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The text form of whole programs, as people read it.
#include <string>
#include <string_view>

#include "algorithms/catalog.h"
#include "algorithms/schedule.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

std::string DumpOf(Collective collective, std::string_view name,
                   const Shape& shape) {
  return Dump(FindAlgorithm(collective, name)->build(shape));
}

TEST(Dump, ShowsWhatAProgramDoes) {
  EXPECT_EQ(DumpOf(Collective::kAllReduce, "two_step", {.ranks = 3, .rank = 1}),
            "chunks per block 3, scratch slots 0, lanes 1\n"
            "lane 0\n"
            "  0: [2] input -> 2\n"
            "  1: [0] input -> 0\n"
            "  2: [1] from 0 + input + from 2 => output (complete)\n"
            "  3: [1] output -> 2, 0\n"
            "  4: [0] from 0 => output\n"
            "  5: [2] from 2 => output\n");
  EXPECT_EQ(DumpOf(Collective::kAllReduce, "chain", {.ranks = 3, .rank = 1}),
            "chunks per block 1, scratch slots 0, lanes 1\n"
            "lane 0\n"
            "  0: [0] from 0 + input -> 2 (partial)\n"
            "  1: [0] from 2 => output -> 0\n");
  EXPECT_EQ(DumpOf(Collective::kReduceScatter, "pat", {.ranks = 5, .rank = 1}),
            "chunks per block 1, scratch slots 3, lanes 1\n"
            "lane 0\n"
            "  0: [0 x2 by -2] input -> 0\n"
            "  1: [1 x2 by -2] input + from 2 => slot 1 (partial)\n"
            "  2: [2] input => slot 0 (partial)\n"
            "  3: [4] partial slot 2 -> 4 (partial)\n"
            "  4: [1] partial slot 1 + partial from 3 => slot 1 (partial)\n"
            "  5: [2] partial slot 0 -> 2 (partial)\n"
            "  6: [1] partial slot 1 + partial from 0 => output (complete)\n");
  EXPECT_EQ(
      DumpOf(Collective::kBarrier, "dissemination", {.ranks = 3, .rank = 2}),
      "chunks per block 1, scratch slots 0, lanes 1\n"
      "lane 0\n"
      "  0: [] -> 0\n"
      "  1: [] from 1 -> 1\n"
      "  2: [] from 0\n");
}

}  // namespace
}  // namespace trnccl
