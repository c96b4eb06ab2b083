// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/fifo.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>

namespace trnccl {
namespace {

TEST(Fifo, BehavesAsADequeInAnySequence) {
  constexpr uint32_t kSeed = 3;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  Fifo<int> fifo;
  std::deque<int> expected;
  for (int i = 0; i < 100'000; ++i) {
    // Long phases of growing and of shrinking.
    const bool grows = random() % 16 < (i / 1000 % 2 == 0 ? 10u : 6u);
    if (grows || expected.empty()) {
      fifo.push_back(i);
      expected.push_back(i);
    } else {
      const size_t index = random() % 2 == 0 ? 0 : random() % expected.size();
      fifo.Erase(index);
      expected.erase(expected.begin() + static_cast<ptrdiff_t>(index));
    }
    ASSERT_EQ(fifo.size(), expected.size());
    ASSERT_EQ(fifo.empty(), expected.empty());
    if (expected.empty()) continue;
    ASSERT_EQ(fifo.front(), expected.front());
    const size_t index = random() % expected.size();
    ASSERT_EQ(fifo[index], expected[index]);
  }
}

TEST(Fifo, LetsGoOfWhatIsTaken) {
  const auto item = std::make_shared<int>(1);
  Fifo<std::shared_ptr<int>> fifo;
  for (int i = 0; i < 3; ++i) fifo.push_back(item);
  fifo.pop_front();
  fifo.Erase(1);
  EXPECT_EQ(item.use_count(), 2);
  fifo.clear();
  EXPECT_EQ(item.use_count(), 1);
}

}  // namespace
}  // namespace trnccl
