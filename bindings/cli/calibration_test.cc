// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/calibration.h"

#include <string>
#include <vector>

#include "ccl/planner/model_file.h"
#include "gtest/gtest.h"

namespace trnccl::cli {
namespace {

Curve CurveOf(const Line& line) {
  Curve curve;
  for (size_t i = 0; i < kSizes.size(); ++i)
    curve[i] = line.constant + line.rate * static_cast<double>(kSizes[i]);
  return curve;
}

Measured SomeMeasured() {
  return {.send = 15e-9,
          .half_round_trip = 115e-9,
          .exchange = 130e-9,
          .segment = 180e-9,
          .write = CurveOf({30e-9, 0.06e-9}),
          .copy = CurveOf({40e-9, 0.07e-9}),
          .fold = CurveOf({50e-9, 0.08e-9}),
          .peer_copy = CurveOf({700e-9, 0.09e-9})};
}

TEST(Median, IsTheMiddleWhateverTheOrder) {
  EXPECT_EQ(Median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(Median(std::vector<double>{4, 1, 2, 100}), 3);
  EXPECT_EQ(Median(std::vector<double>{7}), 7);
}

TEST(FitLine, FindsTheLineThatPointsLieOn) {
  const Line line = FitLine(CurveOf({.constant = 600e-9, .rate = 0.05e-9}));
  EXPECT_NEAR(line.constant, 600e-9, 1e-12);
  EXPECT_NEAR(line.rate, 0.05e-9, 1e-15);
}

TEST(FitLine, WeighsShortAndLongAlike) {
  // A hundredth more on the longest must not drown the constant.
  Curve curve = CurveOf({.constant = 600e-9, .rate = 0.05e-9});
  curve.back() *= 1.01;
  EXPECT_NEAR(FitLine(curve).constant, 600e-9, 20e-9);
}

TEST(FitLine, NeverGoesBelowZero) {
  const Line steep = FitLine(CurveOf({.constant = -100e-9, .rate = 0.05e-9}));
  EXPECT_EQ(steep.constant, 0);
  EXPECT_GT(steep.rate, 0);
  const Line falling = FitLine(CurveOf({.constant = 1, .rate = -1e-6}));
  EXPECT_EQ(falling.rate, 0);
  EXPECT_GT(falling.constant, 0);
}

TEST(ModelOf, GivesWhatTheCostModelAddsUp) {
  const LinkModel model = ModelOf(SomeMeasured());
  EXPECT_NEAR(model.same_node.latency_s, 100e-9, 1e-15);
  EXPECT_NEAR(model.same_node.message_s, 15e-9, 1e-15);
  EXPECT_NEAR(model.same_node.seconds_per_byte, 0.06e-9, 1e-15);
  EXPECT_NEAR(model.step_s, 25e-9, 1e-15);
  EXPECT_NEAR(model.fold_seconds_per_byte, 0.04e-9, 1e-15);
  EXPECT_NEAR(model.copy_seconds_per_byte, 0.07e-9, 1e-15);
  EXPECT_NEAR(model.peer_copy.call_s, 700e-9, 1e-12);
  EXPECT_NEAR(model.peer_copy.seconds_per_byte, 0.09e-9, 1e-15);
}

TEST(ModelOf, KeepsTheDefaultOfWhatWasNotMeasured) {
  Measured measured = SomeMeasured();
  measured.peer_copy = {};
  const LinkModel model = ModelOf(measured);
  const LinkModel built_in = DefaultModel();
  EXPECT_EQ(model.peer_copy.call_s, built_in.peer_copy.call_s);
  EXPECT_EQ(model.other_node.latency_s, built_in.other_node.latency_s);
  const std::string text = TuningText(std::vector{model}, "");
  for (const char* name : {"peer_copy_call_s", "node_latency_s"})
    EXPECT_NE(text.find(std::string("# not measured, built in\n") + name),
              std::string::npos)
        << text;
}

TEST(TuningText, IsTakenBackWithTheMedianOfEachConstant) {
  std::vector<LinkModel> models(3, ModelOf(SomeMeasured()));
  models[0].step_s = 1e-9;
  models[1].step_s = 4e-9;
  models[2].step_s = 100e-9;
  const std::string text = TuningText(models, "# By hand.\n");
  EXPECT_TRUE(text.starts_with("# By hand.\n")) << text;
  EXPECT_NE(text.find(": 1e-09 to 1e-07\nstep_s = 4e-09\n"), std::string::npos)
      << text;
  const auto parsed = ParseModel(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  models[0].step_s = 4e-9;
  EXPECT_EQ(ModelText(*parsed), ModelText(models[0]));
}

}  // namespace
}  // namespace trnccl::cli
