// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/cpu_set.h"

#include <gtest/gtest.h>

namespace trnccl {
namespace {

TEST(CpuSet, IsWrittenAndReadAsTheKernelDoes) {
  for (const char* text : {"", "0", "0-1", "0-3,8", "1,3,5-6,16383"}) {
    const absl::StatusOr<CpuSet> cpus = ParseCpuSet(text);
    ASSERT_TRUE(cpus.ok()) << cpus.status();
    EXPECT_EQ(CpuSetText(*cpus), text);
  }
  EXPECT_EQ(*ParseCpuSet("0-3,8"), (CpuSet{0, 1, 2, 3, 8}));
}

TEST(CpuSet, RefusesWhatTheKernelWouldNotWrite) {
  for (const char* text :
       {" ",    ",",     "0,",  ",0",    "-1",      "1-",
        "3-1",  "1,1",   "2,1", "0-2,2", "01",      "+1",
        "0x1",  "1 ",    "1\n", "16384", "0-16384", "99999999999999999999",
        "1--2", "1-2-3", "a"}) {
    EXPECT_FALSE(ParseCpuSet(text).ok()) << text;
  }
}

TEST(CpuSets, ShareNoProcessor) {
  const auto sets = ParseCpuSets("0,4;1,5;2-3");
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_EQ(*sets, (std::vector<CpuSet>{{0, 4}, {1, 5}, {2, 3}}));
  EXPECT_EQ(CpuSetsText(*sets), "0,4;1,5;2-3");
  EXPECT_TRUE(ParseCpuSets("")->empty());
  for (const char* text : {";", "0;", ";0", "0;;1", "0;0", "0-3;2", "0;x"}) {
    EXPECT_FALSE(ParseCpuSets(text).ok()) << text;
  }
}

}  // namespace
}  // namespace trnccl
