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
  EXPECT_TRUE(last.Leave(Deadline::Never()));
  EXPECT_EQ(first.Enter(), 2);
  EXPECT_EQ(words[0].inside.load(), 0u);
}

TEST(Gate, SaysWhenAPeerStaysInside) {
  std::array<Words, 2> words;
  Gate inside = GateOf(0, words);
  Gate leaving = GateOf(1, words);
  ASSERT_EQ(inside.Enter(), std::nullopt);
  EXPECT_FALSE(leaving.Leave(Deadline::After(1)));
  inside.Exit();
  EXPECT_TRUE(leaving.Leave(Deadline::Never()));
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
    ASSERT_TRUE(gate.Leave(Deadline::Never()));
    freed = true;
    toucher.join();
  }
}

}  // namespace
}  // namespace trnccl::shm
