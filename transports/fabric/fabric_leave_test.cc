// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// After a rank has left, nobody touches its caller's memory, whatever was on
// its way; and other communicators on its port don't notice.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transports/fabric/conformance_forms.h"
#include "transports/fabric/manners.h"

namespace trnccl {
namespace {

constexpr size_t kBytes = size_t{200} << 10;

// Before anything else asks libfabric.
const bool provider_is_named = (NameTheTestProvider(), true);

class Leaving : public ::testing::TestWithParam<FabricOptions> {};

// How far the sender is when the receiver leaves, in turns that each makes.
TEST_P(Leaving, NothingArrivesInTheCallersMemoryAnyMore) {
  for (int turns = 0; turns < 12; ++turns) {
    SCOPED_TRACE(turns);
    Pair pair({.form = GetParam(), .communicators = 2});
    ASSERT_TRUE(pair.Works(1, 0) && pair.Works(1, 1));
    std::vector<std::byte> memory(kBytes);
    auto region = pair[1].Register(memory.data(), kBytes);
    ASSERT_TRUE(region.ok()) << region.status();
    const Expected expected = {
        .bytes = kBytes, .landing = memory.data(), .region = region->get()};
    ASSERT_EQ(pair[1].Peek(pair.link(), &expected), nullptr);
    const LinkId link = pair.link();
    std::byte* slice = pair[0].Reserve({&link, 1}, kBytes);
    ASSERT_NE(slice, nullptr);
    std::memset(slice, 0x77, kBytes);
    ASSERT_TRUE(pair[0].Send({&link, 1}, {.bytes = kBytes}));
    for (int i = 0; i < turns; ++i) {
      static_cast<void>(pair[0].Progress());
      if (i % 2 == 1) static_cast<void>(pair[1].Progress());
    }
    // What's amid the wire needs its sender.
    std::atomic<bool> left = false;
    std::thread sender([&] {
      while (!left) static_cast<void>(pair[0].Progress());
    });
    pair[1].SetPresence(Presence::kLeft);
    left = true;
    sender.join();
    const std::vector<std::byte> before = memory;
    // Polls the same endpoints.
    const bool others = pair.Works(1, 1) && pair.Works(0, 1);
    EXPECT_TRUE(others) << pair.at(1, 1).Progress() << pair.at(0, 1).Progress();
    for (int i = 0; i < 100; ++i) {
      static_cast<void>(pair.at(0, 1).Progress());
      static_cast<void>(pair.at(1, 1).Progress());
    }
    EXPECT_EQ(memory, before);
  }
}

// The peer makes no call, so that its adapter takes nothing.
TEST_P(Leaving, NothingIsSentFromTheCallersMemoryAnyMore) {
  Pair pair({.form = GetParam(), .lanes = 4});
  std::vector<std::byte> memory(kBytes);
  auto region = pair[0].Register(memory.data(), kBytes);
  ASSERT_TRUE(region.ok()) << region.status();
  for (const size_t bytes : {size_t{2000}, kBytes}) {
    for (int lane = 0; lane < 4; ++lane) {
      const LinkId link = pair.link(lane);
      ASSERT_TRUE(
          pair[0].Send({&link, 1}, {.bytes = bytes, .region = region->get()}));
    }
  }
  pair[0].SetPresence(Presence::kLeft);
  region->reset();
  std::fill(memory.begin(), memory.end(), std::byte{0x99});
  for (int lane = 0; lane < 4; ++lane) {
    for (int i = 0; i < 200; ++i) {
      static_cast<void>(pair[1].Progress());
      const Incoming* message = pair[1].Peek(pair.link(lane), nullptr);
      if (message == nullptr) continue;
      EXPECT_EQ(std::count(message->data, message->data + message->bytes,
                           std::byte{0x99}),
                0);
      pair[1].Release(pair.link(lane));
    }
  }
}

TEST_P(Leaving, ARankThatHasFailedLeavesAllTheSame) {
  Pair pair({.form = GetParam(), .lanes = 2});
  std::vector<std::byte> memory(kBytes);
  auto region = pair[0].Register(memory.data(), kBytes);
  ASSERT_TRUE(region.ok()) << region.status();
  const Expected expected = {
      .bytes = kBytes, .landing = memory.data(), .region = region->get()};
  ASSERT_EQ(pair[0].Peek(pair.link(1), &expected), nullptr);
  for (int i = 0; i < 20; ++i) static_cast<void>(pair[0].Progress());
  pair.Destroy(1);
  // TCP takes some before it notices.
  const LinkId link = pair.link();
  while (pair[0].Reserve({&link, 1}, 8) != nullptr) {
    ASSERT_TRUE(pair[0].Send({&link, 1}, {.bytes = 8}));
    for (int i = 0; i < 20; ++i) static_cast<void>(pair[0].Progress());
  }
  pair[0].SetPresence(Presence::kLeft);
  region->reset();
  pair.Destroy(0);
}

// What lies in a kernel is lost, if the process ends and the peer writes to it.
class LeavingInOrder : public ::testing::TestWithParam<FabricOptions> {
 protected:
  void Send(Transport& from, size_t bytes) {
    const LinkId link = pair_.link();
    std::byte* slice = from.Reserve({&link, 1}, bytes);
    ASSERT_NE(slice, nullptr);
    std::memset(slice, 0x31, bytes);
    ASSERT_TRUE(from.Send({&link, 1}, {.bytes = bytes}));
  }
  // Sends so many, all of which leave this rank's memory.
  void SendAll(int count, size_t bytes) {
    for (int i = 0; i < count; ++i) Send(pair_[0], bytes);
    ASSERT_TRUE(pair_.Until([&] { return pair_[0].unsent() == 0; }));
  }
  void Take() {
    ASSERT_NE(pair_.Await(1), nullptr);
    pair_[1].Release(pair_.link());
  }

  // Leaves, until the peer has taken so many and no longer.
  void ExpectToWaitFor(int count) {
    pair_[0].SetPresence(Presence::kLeaving);
    for (int i = 0; i < count; ++i) {
      EXPECT_GT(pair_[0].unsent(), 0u) << i;
      Take();
    }
    EXPECT_TRUE(pair_.Until([&] { return pair_[0].unsent() == 0; }));
  }

  Pair pair_{{.form = GetParam()}};
};

TEST_P(LeavingInOrder, WaitsUntilThePeerHasTakenWhatIsLong) {
  SendAll(3, 8'000);
  ExpectToWaitFor(3);
}

TEST_P(LeavingInOrder, WaitsForAsMuchAsThePeerAnswers) {
  SendAll(17, 8);
  ExpectToWaitFor(17);
}

TEST_P(LeavingInOrder, DoesNotWaitForAFewShortOnes) {
  SendAll(4, 8);
  pair_[0].SetPresence(Presence::kLeaving);
  EXPECT_TRUE(pair_.Until([&] { return pair_[0].unsent() == 0; }));
}

TEST_P(LeavingInOrder, DoesNotWaitForAPeerThatLeavesToo) {
  SendAll(3, 8'000);
  Send(pair_[1], 8);
  pair_[0].SetPresence(Presence::kLeaving);
  EXPECT_GT(pair_[0].unsent(), 0u);
  pair_[1].SetPresence(Presence::kLeaving);
  EXPECT_TRUE(pair_.Until([&] { return pair_[0].unsent() == 0; }));
}

TEST_P(LeavingInOrder, DoesNotWaitForAPeerThatIsGone) {
  SendAll(3, 8'000);
  pair_.Destroy(1);
  EXPECT_TRUE(pair_.Until([&] {
    pair_[0].SetPresence(Presence::kLeaving);
    return pair_[0].unsent() == 0;
  }));
}

// No call of the one who stays waits until the other has heard of releases.
TEST_P(LeavingInOrder, WhoIsGoneHoldsUpNobody) {
  SendAll(4, 8);
  pair_[0].SetPresence(Presence::kLeaving);
  ASSERT_NE(pair_.Await(1), nullptr);
  pair_.Destroy(0);
  for (int i = 0; i < 4; ++i) Take();
  EXPECT_TRUE(pair_.Until([&] { return pair_[1].unsent() == 0; }));
}

TEST_P(LeavingInOrder, DoesNotWaitOnceItHasLeft) {
  SendAll(3, 8'000);
  pair_[0].SetPresence(Presence::kLeaving);
  EXPECT_GT(pair_[0].unsent(), 0u);
  pair_[0].SetPresence(Presence::kLeft);
  EXPECT_TRUE(pair_.Until([&] { return pair_[0].unsent() == 0; }));
}

INSTANTIATE_TEST_SUITE_P(
    OverTcp, LeavingInOrder,
    ::testing::Values(OverLoopback(TcpProvider(), FabricProtocol::kTagged),
                      OverLoopback(TcpProvider(), FabricProtocol::kWrite)),
    [](const auto& test) {
      return test.param.port.protocol == FabricProtocol::kWrite ? "written"
                                                                : "tagged";
    });

INSTANTIATE_TEST_SUITE_P(
    Over, Leaving,
    ::testing::Values(OverManners(FabricProtocol::kTagged),
                      OverManners(FabricProtocol::kWrite),
                      OverLoopback(TcpProvider(), FabricProtocol::kTagged),
                      OverLoopback(TcpProvider(), FabricProtocol::kWrite)),
    [](const auto& test) {
      const fabric::PortOptions& port = test.param.port;
      const bool writes = port.protocol == FabricProtocol::kWrite;
      return port.provider + (writes ? "_written" : "_tagged");
    });

}  // namespace
}  // namespace trnccl
