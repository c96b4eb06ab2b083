// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/gate.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl::shm {
namespace {

struct Words {
  std::atomic<uint32_t> inside = 0;
  std::atomic<uint32_t> left = 0;
};

template <size_t kRanks>
Gate GateOf(int rank, std::array<Words, kRanks>& words) {
  std::vector<Gate::Peer> peers;
  for (size_t peer = 0; peer < kRanks; ++peer) {
    if (static_cast<int>(peer) != rank)
      peers.push_back(
          {static_cast<int>(peer), {&words[peer].inside, &words[peer].left}});
  }
  Words& own = words[static_cast<size_t>(rank)];
  return Gate({&own.inside, &own.left}, std::move(peers));
}

TEST(Gate, NamesWhoHasLeft) {
  std::array<Words, 3> words;
  Gate first = GateOf(0, words);
  Gate last = GateOf(2, words);
  EXPECT_EQ(first.Enter(), std::nullopt);
  first.Exit();
  EXPECT_TRUE(last.Leave().ok());
  EXPECT_EQ(first.Enter(), 2);
  EXPECT_EQ(words[0].inside.load(), 0u);
}

TEST(Gate, SaysWhenAPeerStaysInside) {
  std::array<Words, 2> words;
  Gate inside = GateOf(0, words);
  Gate leaving = GateOf(1, words);
  ASSERT_EQ(inside.Enter(), std::nullopt);
  EXPECT_EQ(leaving.Leave().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(inside.IsOpen(0));
  inside.Exit();
  EXPECT_TRUE(leaving.Leave().ok());
}

TEST(Gate, ClosesTheWayToWhoHasLeftAlone) {
  std::array<Words, 3> words;
  Gate first = GateOf(0, words);
  Gate last = GateOf(2, words);
  ASSERT_TRUE(last.Leave().ok());
  ASSERT_TRUE(first.EnterTo(0));
  EXPECT_TRUE(first.IsOpen(0));
  EXPECT_EQ(words[0].inside.load(), 1u);
  first.Exit();
  EXPECT_FALSE(first.EnterTo(1));
  EXPECT_EQ(words[0].inside.load(), 0u);
}

// A rank frees its memory as soon as it has left: nobody may be inside then.
TEST(Gate, LetsNobodyTouchWhatWasLeft) {
  for (int round = 0; round < 200; ++round) {
    std::array<Words, 2> words;
    std::atomic<bool> freed = false;
    std::atomic<bool> started = false;
    std::thread toucher([&] {
      Gate gate = GateOf(0, words);
      while (!gate.Enter().has_value()) {
        ASSERT_FALSE(freed.load());
        started = true;
        ASSERT_FALSE(freed.load());
        gate.Exit();
      }
    });
    while (!started.load()) std::this_thread::yield();
    Gate gate = GateOf(1, words);
    ASSERT_TRUE(gate.Leave().ok());
    freed = true;
    toucher.join();
  }
}

}  // namespace
}  // namespace trnccl::shm
