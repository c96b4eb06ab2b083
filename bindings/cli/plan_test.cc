// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl::cli {
namespace {

absl::StatusOr<PlanOptions> Parse(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return ParsePlanFlags(arguments);
}

TEST(PlanFlags, TakeRanksNodesAndCollective) {
  const auto options =
      Parse({"--ranks", "5", "--collective", "all_gather", "--nodes", "2"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->ranks, 5);
  EXPECT_EQ(options->nodes, 2);
  EXPECT_EQ(options->collective, Collective::kAllGather);
}

TEST(PlanFlags, RefuseWhatTheyDoNotKnow) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--rank", "2"},
                                             {"--ranks"},
                                             {"--ranks", "1"},
                                             {"--ranks", "many"},
                                             {"--nodes", "0"},
                                             {"--nodes", "3"},
                                             {"--collective", "scan"},
                                             {"--collective", "barrier"},
                                             {"--collective", "all_gather_v"}})
    EXPECT_EQ(Parse(words).status().code(), absl::StatusCode::kInvalidArgument)
        << words.front();
}

TEST(PlanTable, HasARowForEachSizeOfEachEvenCollective) {
  for (const char* name :
       {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter",
        "all_to_all", "gather", "scatter"}) {
    for (const char* ranks : {"2", "3", "8"}) {
      SCOPED_TRACE(std::string(name) + " of " + ranks);
      const auto options = Parse({"--ranks", ranks, "--collective", name});
      ASSERT_TRUE(options.ok()) << options.status();
      const auto table = PlanTable(*options, {});
      ASSERT_TRUE(table.ok()) << table.status();
      EXPECT_EQ(std::count(table->begin(), table->end(), '\n'), 2 + 13);
    }
  }
}

TEST(PlanTable, KnowsTheNodes) {
  const auto table = PlanTable({.ranks = 8, .nodes = 2}, {});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_NE(table->find("hierarchical"), std::string::npos) << *table;
}

TEST(PlanTable, FollowsTheSettings) {
  const auto table = PlanTable({.ranks = 4}, {.algorithm = "all_reduce:ring"});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_NE(table->find(" ring "), std::string::npos) << *table;
  EXPECT_EQ(table->find("one_step"), std::string::npos) << *table;
  const auto unread = PlanTable({}, {.tuning_file = "/no/such/file"});
  EXPECT_EQ(unread.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace trnccl::cli
