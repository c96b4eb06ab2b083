// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/transport_set/transport_set.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>

namespace trnccl {
namespace {

// Ranks of one process, told that they're on nodes of their own.
TEST(TransportSet, LeavesOutWhatReachesNobody) {
  Settings settings;
  settings.transport = {"shm", "inproc"};
  std::array<std::unique_ptr<TransportSet>, 2> sets;
  TransportSet::ConnectRequest request;
  for (int rank = 0; rank < 2; ++rank) {
    auto made = TransportSet::Create(
        {.membership = {.rank = rank, .ranks = 2}, .settings = &settings});
    ASSERT_TRUE(made.ok()) << made.status();
    sets[rank] = *std::move(made);
    request.peers.push_back({.address = sets[rank]->address(),
                             .host = rank == 0 ? "a" : "b",
                             .process = "one"});
  }
  absl::Status other;
  std::thread thread([&] { other = sets[1]->Connect(request); });
  const absl::Status mine = sets[0]->Connect(request);
  thread.join();
  ASSERT_TRUE(mine.ok()) << mine;
  ASSERT_TRUE(other.ok()) << other;
  for (const std::unique_ptr<TransportSet>& set : sets) {
    EXPECT_EQ(set->name(), "inproc");
    set->SetPresence(Presence::kAsleep);
    set->SetPresence(Presence::kAwake);
    EXPECT_TRUE(set->Progress().ok());
    EXPECT_TRUE(set->AllSent());
  }
}

}  // namespace
}  // namespace trnccl
