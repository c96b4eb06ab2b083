// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What the simulated network does to messages when it's told to.
#include "transports/sim/sim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "ccl/base/origin.h"

namespace trnccl {
namespace {

constexpr int kRanks = 3;

class SimTest : public testing::Test {
 protected:
  void Connect(const SimWeather& weather, SimOptions options = {}) {
    network_ = std::make_shared<SimNetwork>(/*seed=*/7, weather);
    options.network = network_;
    for (auto& rank : ranks_) rank = MakeSimTransport(options);
    for (int rank = 0; rank < kRanks; ++rank) {
      ConnectOptions connect{.rank = rank, .lanes = 2};
      for (int peer = 0; peer < kRanks; ++peer)
        if (peer != rank)
          connect.peers.push_back({peer, ranks_[peer]->traits().address});
      ASSERT_TRUE(ranks_[rank]->Connect(connect).ok());
    }
  }

  // Of `rank` with `peer`.
  LinkId With(int rank, int peer, int lane = 0) {
    return ranks_[rank]->Link(peer < rank ? peer : peer - 1, lane);
  }

  // One byte from rank 0; false if there's no room.
  bool Send(int peer, uint8_t value, int lane = 0) {
    const LinkId link = With(0, peer, lane);
    std::byte* slice = ranks_[0]->Reserve({&link, 1}, 1);
    if (slice == nullptr) return false;
    *slice = std::byte{value};
    return ranks_[0]->Send({&link, 1}, {.bytes = 1});
  }

  // What has come from rank 0, taken.
  std::optional<int> Take(int peer, int lane = 0) {
    const LinkId link = With(peer, 0, lane);
    const Incoming* message = ranks_[peer]->Peek(link, nullptr);
    if (message == nullptr) return std::nullopt;
    const int value = static_cast<int>(*message->data);
    ranks_[peer]->Release(link);
    return value;
  }

  std::shared_ptr<SimNetwork> network_;
  std::array<std::unique_ptr<Transport>, kRanks> ranks_;
};

TEST_F(SimTest, MessagesComeWhenTheirTimeHasCome) {
  Connect({.delay_ns = 1'000'000, .tick_ns = 0});
  ASSERT_TRUE(Send(1, 5));
  const int64_t arrives_ns = network_->NextArrivalNs(network_->now_ns());
  ASSERT_LE(arrives_ns, network_->now_ns() + 1'000'000);
  network_->Pass(arrives_ns - network_->now_ns() - 1);
  EXPECT_EQ(Take(1), std::nullopt);
  network_->Pass(1);
  EXPECT_EQ(Take(1), 5);
}

TEST_F(SimTest, LanesOvertakeEachOtherAndLinksKeepTheirOrder) {
  Connect({.delay_ns = 1'000'000}, {.form = {.capacity = 4}});
  int overtaken = 0;
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(Send(1, 1) && Send(1, 2) && Send(1, 3, /*lane=*/1));
    std::vector<int> came;
    while (came.size() < 3) {
      network_->Pass(1000);
      for (int lane = 0; lane < 2; ++lane)
        if (const auto value = Take(1, lane)) came.push_back(*value);
    }
    EXPECT_LT(std::ranges::find(came, 1), std::ranges::find(came, 2));
    overtaken += came.back() == 3 ? 0 : 1;
    network_->Pass(1'000'000);
  }
  EXPECT_GT(overtaken, 5);
  EXPECT_LT(overtaken, 50);
}

TEST_F(SimTest, LostMessagesComeLater) {
  Connect({.lost_per_1000 = 500, .resend_ns = 1'000'000, .tick_ns = 0});
  int late = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Send(1, 9));
    if (Take(1) == 9) {
      network_->Pass(100'000'000);  // for the news of the release
      continue;
    }
    ++late;
    network_->Pass(100'000'000);
    EXPECT_EQ(Take(1), 9);
    network_->Pass(100'000'000);
  }
  EXPECT_GT(late, 20);
  EXPECT_LT(late, 80);
}

TEST_F(SimTest, ACutPairHearsNothingAndOthersGoOn) {
  Connect({.delay_ns = 1000});
  ASSERT_TRUE(Send(1, 1));
  network_->Cut(0, 1);
  ASSERT_TRUE(Send(2, 2));
  network_->Pass(1'000'000'000);
  EXPECT_EQ(Take(1), std::nullopt);
  EXPECT_EQ(Take(2), 2);
  EXPECT_FALSE(Send(1, 3)) << "no release can be heard of";
  for (const auto& rank : ranks_) EXPECT_TRUE(rank->Progress().ok());
}

TEST_F(SimTest, ACutRankHearsNothingFromAnybody) {
  Connect({.delay_ns = 1000});
  network_->Cut(0, -1);
  ASSERT_TRUE(Send(1, 1) && Send(2, 2));
  network_->Pass(1'000'000'000);
  EXPECT_EQ(Take(1), std::nullopt);
  EXPECT_EQ(Take(2), std::nullopt);
}

TEST_F(SimTest, AKilledRankIsNamedOnceItsDeathIsKnown) {
  Connect({.detection_ns = 1'000'000'000});
  ASSERT_TRUE(Send(1, 1));
  network_->Kill(0);
  EXPECT_FALSE(Send(2, 2)) << "the dead send nothing";
  EXPECT_EQ(Take(1), 1) << "what was sent before";
  EXPECT_TRUE(ranks_[1]->Progress().ok());
  network_->Pass(1'000'000'000);
  for (const int survivor : {1, 2}) {
    const absl::Status status = ranks_[survivor]->Progress();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(OriginOf(status), 0);
    EXPECT_EQ(ranks_[survivor]->Progress(), status) << "errors stay";
  }
}

// Where messages deliver, who stops calling leaves them where they are.
TEST_F(SimTest, WhatDeliversNeedsItsSender) {
  Connect({.delay_ns = 1'000'000, .tick_ns = 0}, {.form = {.delivers = true}});
  ASSERT_TRUE(Send(1, 4));
  network_->Pass(1'000'000);
  EXPECT_EQ(Take(1), std::nullopt);
  EXPECT_EQ(ranks_[0]->unsent(), 1u);
  ASSERT_TRUE(ranks_[0]->Progress().ok());
  EXPECT_EQ(ranks_[0]->unsent(), 0u);
  network_->Pass(1'000'000);
  EXPECT_EQ(Take(1), 4);
}

// A rank that gives up its buffers leaves garbage there: who reads it must have
// heard of the failure by then, which was said before.
TEST_F(SimTest, WhoLeavesTakesItsMemoryAway) {
  Connect({.delay_ns = 1'000'000}, {.by_reference = true});
  std::byte memory[] = {std::byte{6}};
  const auto region = ranks_[0]->Register(memory, 1);
  ASSERT_TRUE(region.ok());
  const LinkId link = With(0, 1);
  ASSERT_TRUE(
      ranks_[0]->Send({&link, 1}, {.bytes = 1, .region = region->get()}));
  ASSERT_TRUE(Send(1, 8, /*lane=*/1));
  ranks_[0]->SetPresence(Presence::kLeft);
  EXPECT_EQ(Take(1, 1), 8);
  EXPECT_NE(Take(1), 6);
}

}  // namespace
}  // namespace trnccl
