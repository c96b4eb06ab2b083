// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/health/health.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "ccl/point_to_point/test_world.h"

namespace trnccl {
namespace {

constexpr uint32_t kCookie = 0xbeef;

// Ranks of one process; the lanes of point-to-point are left to health.
class HealthTest : public testing::TestWithParam<Wire> {
 protected:
  static constexpr int kRanks = 3;

  HealthTest() : world_({.ranks = kRanks, .wire = GetParam()}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int peer = 0; peer < kRanks; ++peer)
        routes_[rank].push_back(world_.route(rank, peer));
      ranks_.push_back(Made(rank, kCookie));
    }
  }

  std::unique_ptr<Health> Made(int rank, uint32_t cookie) {
    return std::make_unique<Health>(
        Health::Options{.membership = {.rank = rank, .ranks = kRanks},
                        .routes = &routes_[rank],
                        .cookie = cookie});
  }

  const Health::Notice* HeardBy(int rank) {
    ranks_[rank]->Listen();
    return ranks_[rank]->notice();
  }

  TestWorld world_;
  Routes routes_[kRanks];
  std::vector<std::unique_ptr<Health>> ranks_;
};

TEST_P(HealthTest, IsQuietUntilSomethingIsSaid) {
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(HeardBy(rank), nullptr);
    EXPECT_EQ(ranks_[rank]->WaitingIn((rank + 1) % kRanks), nullptr);
    EXPECT_EQ(ranks_[rank]->Silent().size(), 2u);
  }
}

TEST_P(HealthTest, EveryPeerHearsWhatHappenedAndWhere) {
  ranks_[1]->Tell({.origin = 2,
                   .sequence = 7,
                   .cause = absl::UnavailableError("rank 2 died")});
  EXPECT_EQ(HeardBy(1), nullptr);
  for (const int rank : {0, 2}) {
    const Health::Notice* notice = HeardBy(rank);
    ASSERT_NE(notice, nullptr);
    EXPECT_EQ(notice->origin, 2);
    EXPECT_EQ(notice->sequence, 7u);
    EXPECT_EQ(notice->cause, absl::UnavailableError("rank 2 died"));
    EXPECT_EQ(ranks_[rank]->Silent(), std::vector<int>{2 - rank});
  }
}

TEST_P(HealthTest, TheFirstThatsHeardStays) {
  ranks_[0]->Tell({.origin = 0, .cause = absl::AbortedError("first")});
  ASSERT_NE(HeardBy(2), nullptr);
  ranks_[1]->Tell({.origin = 1, .cause = absl::AbortedError("second")});
  EXPECT_EQ(HeardBy(2)->cause.message(), "first");
  EXPECT_TRUE(ranks_[2]->Silent().empty());
}

// A peer that has completed fewer calls than the first one that failed.
TEST_P(HealthTest, TheLowestSequenceCounts) {
  ranks_[0]->Tell(
      {.origin = 0, .sequence = 1, .cause = absl::AbortedError("first")});
  ASSERT_NE(HeardBy(2), nullptr);
  EXPECT_EQ(HeardBy(2)->sequence, 1u);
  ranks_[1]->Tell({.origin = 1,
                   .sequence = UINT32_MAX,  // they wrap
                   .cause = absl::AbortedError("second")});
  EXPECT_EQ(HeardBy(2)->sequence, UINT32_MAX);
}

TEST_P(HealthTest, TheFirstCauseIsPassedOn) {
  ranks_[0]->Tell({.origin = 0, .cause = absl::AbortedError("first")});
  ASSERT_NE(HeardBy(1), nullptr);
  ranks_[1]->Tell({.origin = 1, .cause = absl::AbortedError("second")});
  // As if rank 2 couldn't be told by rank 0.
  const Route& route = routes_[2][0];
  ASSERT_NE(route.transport->Peek(route.Link(0), nullptr), nullptr);
  route.transport->Release(route.Link(0));
  ASSERT_NE(HeardBy(2), nullptr);
  EXPECT_EQ(HeardBy(2)->origin, 0);
  EXPECT_EQ(HeardBy(2)->cause.message(), "first");
}

TEST_P(HealthTest, IsHeardAfterWhoSaidItHasGone) {
  ranks_[0]->Tell(
      {.origin = 0, .cause = absl::InternalError("the last words")});
  ranks_[0].reset();
  ASSERT_NE(HeardBy(1), nullptr);
  EXPECT_EQ(HeardBy(1)->cause.message(), "the last words");
}

TEST_P(HealthTest, IsSaidOnceWhereverTheresRoom) {
  for (int i = 0; i < 20; ++i)
    ranks_[0]->Tell({.origin = 0, .cause = absl::InternalError("once")});
  ranks_[1]->Listen();
  const Route& route = routes_[1][0];
  EXPECT_EQ(route.transport->Peek(route.Link(0), nullptr), nullptr);
}

TEST_P(HealthTest, LongTextsAreCut) {
  ranks_[0]->Tell(
      {.origin = 0, .cause = absl::InternalError(std::string(1 << 20, 'x'))});
  ASSERT_NE(HeardBy(1), nullptr);
  const size_t size = HeardBy(1)->cause.message().size();
  EXPECT_GE(size, 1000u);
  EXPECT_LE(size, 4096u);
}

TEST_P(HealthTest, PeersLearnInWhichCallARankWaits) {
  const Envelope call = {{kCookie, 5, 1234}};
  ranks_[2]->SayWaiting(call);
  ranks_[1]->Listen();
  ASSERT_NE(ranks_[1]->WaitingIn(2), nullptr);
  EXPECT_EQ(*ranks_[1]->WaitingIn(2), call);
  EXPECT_EQ(ranks_[1]->WaitingIn(0), nullptr);
  EXPECT_EQ(HeardBy(1), nullptr);
}

// Whoever doesn't read is told once that he's waited for: the room that's left
// is for a failure.
TEST_P(HealthTest, ARefusalThatIsTakenBackIsForgottenHoweverFullTheLinksAre) {
  // So often that the links are full.
  for (uint32_t times = 1; times <= 200; ++times)
    ranks_[1]->SayRefused({.sequence = 7, .times = times, .text = "bad"});
  Envelope call = {};
  call.words[0] = 7;
  ranks_[1]->SayMade(call);
  for (const int rank : {0, 2}) {
    ranks_[rank]->Listen();
    if (const Health::Refusal* refusal = ranks_[rank]->RefusedBy(1)) {
      EXPECT_EQ(refusal->sequence, 7u);
      EXPECT_EQ(refusal->text, "bad");
    }
  }
  // What had no room is said once there is some.
  ranks_[1]->Listen();
  for (const int rank : {0, 2}) {
    ranks_[rank]->Listen();
    EXPECT_EQ(ranks_[rank]->RefusedBy(1), nullptr);
  }
}

TEST_P(HealthTest, WaitingLeavesRoomForAFailure) {
  for (uint64_t i = 0; i < 20; ++i) ranks_[0]->SayWaiting({{i, 0, 0}});
  ranks_[0]->Tell({.origin = 0, .cause = absl::InternalError("after all")});
  ranks_[1]->Listen();
  EXPECT_EQ(ranks_[1]->WaitingIn(0)->words[0], 0u);
  // A link that takes just one message has room once that is read.
  ranks_[0]->Tell({.origin = 0, .cause = absl::InternalError("after all")});
  ASSERT_NE(HeardBy(1), nullptr);
  EXPECT_EQ(HeardBy(1)->cause.message(), "after all");
}

// What isn't of this communicator is a failure of who sent it.
TEST_P(HealthTest, StrangeMessagesAreFailures) {
  Made(1, kCookie + 1)->SayWaiting({{1, 2, 3}});
  ASSERT_NE(HeardBy(0), nullptr);
  EXPECT_FALSE(HeardBy(0)->cause.ok());
}

// A peer's text is as long as it says; what's kept of it isn't.
TEST(Health, KeepsABoundedPartOfAText) {
  TestWorld world({.ranks = 2, .slice_bytes = 64 << 10});
  const Routes routes = {world.route(0, 0), world.route(0, 1)};
  Health health({.membership = {.rank = 0, .ranks = 2},
                 .routes = &routes,
                 .cookie = kCookie});
  const LinkId link = world.route(1, 0).Link(0);
  constexpr size_t kBytes = 60'000;
  std::byte* slice = world.transport(1).Reserve({&link, 1}, kBytes);
  ASSERT_NE(slice, nullptr);
  std::memset(slice, 'x', kBytes);
  world.transport(1).Send(
      {&link, 1},
      {.envelope = {{uint64_t{kCookie} << 32 | 2, 0, 14}}, .bytes = kBytes});
  health.Listen();
  ASSERT_NE(health.notice(), nullptr);
  EXPECT_EQ(health.notice()->cause.code(), absl::StatusCode::kUnavailable);
  EXPECT_LE(health.notice()->cause.message().size(), 4096u);
}

// Of what's too long for a message, its beginning.
TEST(Health, SaysWhatFits) {
  TestWorld world({.ranks = 2, .slice_bytes = 64});
  const Routes routes[] = {{world.route(0, 0), world.route(0, 1)},
                           {world.route(1, 0), world.route(1, 1)}};
  const auto made = [&](int rank) {
    return Health({.membership = {.rank = rank, .ranks = 2},
                   .routes = &routes[rank],
                   .cookie = kCookie});
  };
  Health leaver = made(0);
  Health other = made(1);
  Health::LastCalls calls;
  for (uint64_t i = 0; i < calls.size(); ++i) calls[i] = {{i, 2 * i, 3 * i}};
  leaver.SayLeft({.sequence = 9, .last_calls = calls});
  other.Listen();
  ASSERT_NE(other.LeftBy(0), nullptr);
  EXPECT_EQ(other.LeftBy(0)->sequence, 9u);
  // Two whole ones.
  for (size_t i = 2; i < calls.size(); ++i) calls[i] = {};
  EXPECT_EQ(other.LeftBy(0)->last_calls, calls);
  other.Tell({.origin = 1, .cause = absl::InternalError(std::string(99, 'x'))});
  leaver.Listen();
  ASSERT_NE(leaver.notice(), nullptr);
  EXPECT_EQ(leaver.notice()->cause.message(), std::string(64, 'x'));
}

INSTANTIATE_TEST_SUITE_P(Wires, HealthTest,
                         testing::Values(Wire::kInproc, Wire::kShm));

}  // namespace
}  // namespace trnccl
