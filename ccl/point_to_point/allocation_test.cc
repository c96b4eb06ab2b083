// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <new>

#include "ccl/point_to_point/test_world.h"

namespace {
size_t allocations = 0;
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace trnccl {
namespace {

// Each receive is posted before its send.
void PlayRound(TestWorld& world, std::deque<Transfer>& receives,
               std::deque<Transfer>& sends) {
  for (Transfer& receive : receives) world[1].Start(&receive);
  for (Transfer& send : sends) world[0].Start(&send);
  while (!receives.back().done || !sends.back().done) {
    world.Step(0);
    world.Step(1);
  }
}

TEST(PointToPoint, AllocatesNothingForMatchedMessagesOnceWarm) {
  for (const size_t bytes : {size_t{8}, size_t{1024}, size_t{10'000}}) {
    for (const Wire wire : {Wire::kInproc, Wire::kShm}) {
      TestWorld world({.wire = wire, .unmapped_min_bytes = 1});
      GuardedBuffer source(bytes), destination(bytes);
      std::deque<Transfer> sends(20, SendOf(source, 1, 3));
      std::deque<Transfer> receives(20, ReceiveInto(destination, 0, 3));
      for (size_t i = 0; i < receives.size(); i += 2) {
        receives[i].peer = kAnySource;
      }
      for (int i = 0; i < 100; ++i) PlayRound(world, receives, sends);
      const size_t before = allocations;
      for (int i = 0; i < 100; ++i) PlayRound(world, receives, sends);
      EXPECT_EQ(allocations, before) << bytes;
    }
  }
}

}  // namespace
}  // namespace trnccl
