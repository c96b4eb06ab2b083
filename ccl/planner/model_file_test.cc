// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/planner/model_file.h"

#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(ModelFile, TakesBackWhatItWrites) {
  LinkModel model = DefaultModel();
  model.same_node.latency_s = 0.25;
  model.other_node.seconds_per_byte = 0.5;
  const auto parsed = ParseModel(ModelText(model));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->same_node.latency_s, 0.25);
  EXPECT_EQ(parsed->other_node.seconds_per_byte, 0.5);
  EXPECT_EQ(ModelText(*parsed), ModelText(model));
}

TEST(ModelFile, KeepsTheDefaultOfWhatItDoesNotName) {
  const auto parsed = ParseModel("# measured\n\nstep_s = 1e-6 # slow\n");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->step_s, 1e-6);
  EXPECT_EQ(parsed->same_node.latency_s, DefaultModel().same_node.latency_s);
}

TEST(ModelFile, RefusesWhatIsNoConstant) {
  for (const char* text :
       {"speed = 1", "step_s", "step_s = fast", "step_s = -1", "step_s = nan",
        "step_s = 2", "step_s = 1e-6 = 2"}) {
    const auto parsed = ParseModel(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().message().find(std::string(text).substr(0, 5)),
              absl::string_view::npos);
  }
}

TEST(ModelFile, NamesAFileThatCannotBeRead) {
  const auto read = ReadModelFile("/nonexistent/tuning");
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find("/nonexistent/tuning"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace trnccl
