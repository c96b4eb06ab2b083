// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Two ranks and one call, with a fault at every step of it.
#include "tests/simulation/world.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

namespace trnccl {
namespace {

// More than any of the calls takes.
constexpr int kMostSteps = 400;

struct Wire {
  bool delivers = false;
  bool by_reference = false;
};

Scenario OverWire(const Wire& wire, const SimCall& call) {
  Scenario scenario{.grid = {{{0, 1}}}, .script = {{call}}};
  scenario.settings.lanes = 1;
  scenario.settings.timeout_ms = 1'000;
  scenario.within = {.name = "near",
                     .form = {.delivers = wire.delivers},
                     .by_reference = wire.by_reference,
                     .any_memory = wire.by_reference};
  scenario.across = scenario.within;
  scenario.across.name = "far";
  return scenario;
}

// Longer than what's copied at once.
SimCall LongMessage() {
  return {.kind = SimCall::kMessages,
          .messages = {{.from = 0, .to = 1, .bytes = 20'000}}};
}

// The ranks in turn, rank 0 first.
class TwoRanks {
 public:
  explicit TwoRanks(const Scenario& scenario) : world_(scenario) {
    for (int rank = 0; rank < 2; ++rank) {
      calls_.push_back(std::make_unique<RankCalls>(scenario.script[0], rank,
                                                   &world_.oracle()));
      const absl::Status submitted =
          world_[rank].Submit(calls_.back()->operations());
      EXPECT_TRUE(submitted.ok()) << submitted;
    }
  }
  ~TwoRanks() { world_.End(); }

  SimWorld& world() { return world_; }
  const RankCalls& calls(int rank) { return *calls_[rank]; }

  void Step(int steps) {
    for (int i = 0; i < steps; ++i) world_[i % 2].DriveOnce();
  }
  // Of rank 1, alone from here on; in jumps, as if it slept in between.
  void RunSurvivor() {
    for (int i = 0; i < kMostSteps && !calls(1).done(); ++i) {
      world_[1].DriveOnce();
      if (i % 100 == 99) world_.network().Pass(400'000'000);
    }
  }

 private:
  SimWorld world_;
  std::vector<std::unique_ptr<RankCalls>> calls_;
};

void FailAtEveryStep(const Scenario& scenario,
                     const std::function<void(SimWorld&)>& fail) {
  int failed = 0;
  for (int steps = 0; steps < kMostSteps; ++steps) {
    SCOPED_TRACE(testing::Message() << "after " << steps << " steps");
    TwoRanks ranks(scenario);
    ranks.Step(steps);
    if (ranks.calls(0).done() && ranks.calls(1).done()) {
      EXPECT_GT(failed, 0);
      return;
    }
    fail(ranks.world());
    ranks.RunSurvivor();
    ASSERT_TRUE(ranks.calls(1).done()) << "it hangs";
    ASSERT_EQ(ranks.calls(1).Check(), "");
    const absl::Status& status = ranks.calls(1).operations()[0]->status;
    if (status.ok()) continue;
    ++failed;
    ASSERT_TRUE(absl::StrContains(status.message(), "origin: rank 0"))
        << status;
  }
  ADD_FAILURE() << "the call never ended by itself";
}

void Kill(SimWorld& world) { world.network().Kill(0); }
void Abort(SimWorld& world) { world[0].Abort(); }

TEST(Receive, TakesNoGarbageForAMessageOfARankThatFailed) {
  FailAtEveryStep(OverWire({.by_reference = true}, LongMessage()), Abort);
}

TEST(Receive, TakesNoGarbageForAMessageOfARankThatLeft) {
  Scenario scenario = OverWire({.by_reference = true}, LongMessage());
  scenario.settings.timeout_ms = 10'000;
  FailAtEveryStep(scenario, [](SimWorld& world) { world.Destroy(0); });
}

// What a rank leaves unfinished, its peers don't take for finished.
TEST(Reduce, TakesNoGarbageForDataOfARankThatLeft) {
  FailAtEveryStep(
      OverWire({.by_reference = true}, {.collective = Collective::kReduce,
                                        .type = DataType::kInt32,
                                        .root = 1,
                                        .count = 2'000}),
      [](SimWorld& world) { world.Destroy(0); });
}

TEST(Receive, EndsWhereverItsSenderDies) {
  for (const Wire& wire : {Wire{}, Wire{.by_reference = true},
                           Wire{.delivers = true, .by_reference = true}})
    FailAtEveryStep(OverWire(wire, LongMessage()), Kill);
}

TEST(AllReduce, EndsWhereverAPeerDiesOrAborts) {
  const SimCall call{.collective = Collective::kAllReduce,
                     .type = DataType::kFloat32,
                     .count = 3'000};
  for (const Wire& wire : {Wire{}, Wire{.by_reference = true},
                           Wire{.delivers = true, .by_reference = true}}) {
    FailAtEveryStep(OverWire(wire, call), Kill);
    FailAtEveryStep(OverWire(wire, call), Abort);
  }
}

// On a wire that needs calls of its sender, an abort that makes none tells
// nobody.
TEST(Abort, IsKnownToPeersBeforeTheirDeadlines) {
  Scenario scenario = OverWire({.delivers = true}, LongMessage());
  scenario.weather.delay_ns = 1'000'000;
  TwoRanks ranks(scenario);
  const int64_t since_ns = ranks.world().network().now_ns();
  ranks.world()[0].Abort();
  ranks.RunSurvivor();
  EXPECT_EQ(ranks.calls(1).operations()[0]->status.code(),
            absl::StatusCode::kUnavailable);
  EXPECT_LT(ranks.world().network().now_ns() - since_ns, 500'000'000);
}

// The same for a refusal after which its rank makes no more calls.
TEST(Refusal, IsKnownToPeersBeforeTheirDeadlines) {
  Scenario scenario = OverWire(
      {.delivers = true}, {.collective = Collective::kAllReduce, .count = 1});
  scenario.settings.timeout_ms = 10'000;
  scenario.weather.delay_ns = 1'000'000;
  SimWorld world(scenario);
  RankCalls calls(scenario.script[0], 1, &world.oracle());
  EXPECT_TRUE(world[1].Submit(calls.operations()).ok());
  world[0].AnnounceRefusal(absl::InvalidArgumentError("no such root"));
  const int64_t since_ns = world.network().now_ns();
  for (int i = 0; i < kMostSteps && !calls.done(); ++i) {
    world[1].DriveOnce();
    if (i % 10 == 9) world.network().Pass(100'000'000);
  }
  const absl::Status& status = calls.operations()[0]->status;
  EXPECT_TRUE(absl::StrContains(status.message(), "no such root")) << status;
  EXPECT_LT(world.network().now_ns() - since_ns, 2'000'000'000);
  world.End();
}

}  // namespace
}  // namespace trnccl
