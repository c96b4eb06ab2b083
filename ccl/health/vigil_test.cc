// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/health/vigil.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/bootstrap/wire.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

constexpr int64_t kPatienceMs = 20'000;

std::array<Socket, 2> Connected() {
  std::array<int, 2> fds = {};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                       fds.data()),
            0);
  return {Socket(fds[0], "one end"), Socket(fds[1], "the other end")};
}

// Rank 0 with the children 1 and 2, and 3 below 1.
class VigilTest : public ::testing::Test {
 protected:
  VigilTest() {
    Link(0, 1);
    Link(0, 2);
    Link(1, 3);
  }

  void Link(int parent, int child) {
    std::array<Socket, 2> ends = Connected();
    trees_[parent].children.push_back({child, "", std::move(ends[0])});
    trees_[child].parent = {parent, "", std::move(ends[1])};
  }

  void StartAllBut(int absent) {
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == absent) continue;
      auto vigil = Vigil::Start({.tree = std::move(trees_[rank]),
                                 .rank = rank,
                                 .ranks = 4,
                                 .silence_ms = 10'000});
      ASSERT_TRUE(vigil.ok());
      vigils_[rank] = *std::move(vigil);
    }
  }

  // The first loss that a rank learns of.
  Vigil::Loss LossSeenBy(int rank) {
    const Deadline deadline = Deadline::After(kPatienceMs);
    while (vigils_[rank]->losses() == 0 && !deadline.expired()) usleep(1'000);
    const std::vector<Vigil::Loss> losses = vigils_[rank]->LossesFrom(0);
    return losses.empty() ? Vigil::Loss{.rank = -1} : losses.front();
  }

  std::array<Tree, 4> trees_;
  std::array<std::shared_ptr<Vigil>, 4> vigils_;
};

TEST_F(VigilTest, ALossIsToldToAll) {
  StartAllBut(1);
  trees_[1] = Tree();  // as a process that ends
  for (const int rank : {0, 2, 3}) {
    const Vigil::Loss loss = LossSeenBy(rank);
    EXPECT_EQ(loss.rank, 1) << rank;
    EXPECT_NE(loss.reason.find("died"), loss.reason.npos) << loss.reason;
  }
  EXPECT_EQ(vigils_[0]->LossesFrom(0).size(), 1u);
}

TEST_F(VigilTest, WhoLeavesInOrderIsNotLost) {
  StartAllBut(-1);
  vigils_[3].reset();
  vigils_[0]->Report({.rank = 2, .reason = "is a test"});
  EXPECT_EQ(LossSeenBy(1).rank, 2);  // after what rank 3 may have caused
  EXPECT_EQ(vigils_[1]->LossesFrom(0).size(), 1u);
}

TEST_F(VigilTest, WhatOthersFoundOutIsToldToAll) {
  StartAllBut(-1);
  vigils_[3]->Report({.rank = 2, .reason = "died of a test"});
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(LossSeenBy(rank).rank, 2);
    EXPECT_EQ(LossSeenBy(rank).reason, "died of a test");
  }
  EXPECT_EQ(vigils_[2]->losses(), 0u);  // it knows better
}

TEST_F(VigilTest, ADepartureIsToldToWhoAttendsToItsCommunicator) {
  StartAllBut(-1);
  for (const int rank : {0, 1}) vigils_[rank]->Attend(7);
  vigils_[0]->Attend(8);
  vigils_[3]->Depart(
      {.cookie = 7, .rank = 3, .sequence = 12, .last_calls = "opaque"});
  for (const int rank : {0, 1}) {
    const Deadline deadline = Deadline::After(kPatienceMs);
    while (vigils_[rank]->departures() == 0 && !deadline.expired())
      usleep(1'000);
    const auto departures = vigils_[rank]->DeparturesFrom(7);
    ASSERT_EQ(departures.size(), 1u) << rank;
    EXPECT_EQ(departures[0].rank, 3);
    EXPECT_EQ(departures[0].sequence, 12u);
    EXPECT_EQ(departures[0].last_calls, "opaque");
  }
  EXPECT_TRUE(vigils_[0]->DeparturesFrom(8).empty());
  EXPECT_TRUE(vigils_[2]->DeparturesFrom(7).empty());
  vigils_[0]->Unattend(7);
  EXPECT_TRUE(vigils_[0]->DeparturesFrom(7).empty());
  EXPECT_EQ(vigils_[0]->losses(), 0u);
}

TEST_F(VigilTest, ADepartureMayComeBeforeAnyoneAttends) {
  StartAllBut(-1);
  vigils_[0]->Attend(7);
  vigils_[3]->Depart({.cookie = 8, .rank = 3, .sequence = 1});
  vigils_[3]->Depart({.cookie = 7, .rank = 3, .sequence = 2});
  const Deadline deadline = Deadline::After(kPatienceMs);
  while (vigils_[0]->departures() == 0 && !deadline.expired()) usleep(1'000);
  vigils_[0]->Attend(8);
  EXPECT_EQ(vigils_[0]->departures(), 2u);
  const auto departures = vigils_[0]->DeparturesFrom(8);
  ASSERT_EQ(departures.size(), 1u);
  EXPECT_EQ(departures[0].rank, 3);
}

// However many communicators others end that this rank never makes.
TEST_F(VigilTest, EarlyDeparturesTakeBoundedMemory) {
  StartAllBut(-1);
  vigils_[0]->Attend(7);
  constexpr uint32_t kMany = 5'000;
  for (uint32_t i = 0; i < kMany; ++i) {
    vigils_[3]->Depart({.cookie = 1'000 + i, .rank = 3, .sequence = 1});
    // The sockets between them take only so much.
    for (const auto& vigil : vigils_) vigil->LookNow();
  }
  vigils_[3]->Depart({.cookie = 7, .rank = 3, .sequence = 1});
  const Deadline deadline = Deadline::After(kPatienceMs);
  while (vigils_[0]->departures() == 0 && !deadline.expired()) usleep(1'000);
  vigils_[0]->Attend(1'000);
  EXPECT_TRUE(vigils_[0]->DeparturesFrom(1'000).empty());
  vigils_[0]->Attend(1'000 + kMany - 1);
  EXPECT_EQ(vigils_[0]->DeparturesFrom(1'000 + kMany - 1).size(), 1u);
}

TEST_F(VigilTest, GarbageIsTheSendersLoss) {
  StartAllBut(3);
  const std::string garbage(100, '\xff');
  ASSERT_EQ(send(trees_[3].parent.socket.fd(), garbage.data(), garbage.size(),
                 MSG_NOSIGNAL),
            100);
  EXPECT_EQ(LossSeenBy(0).rank, 3);
}

TEST_F(VigilTest, WordsThatComeInPiecesAreTakenWhole) {
  StartAllBut(3);
  WireWriter body;
  body.U8(static_cast<uint8_t>(TreeFrame::Kind::kLost));
  body.U32(0);
  body.U32(2);
  body.Text("died in pieces");
  WireWriter frame;
  frame.U32(static_cast<uint32_t>(body.bytes().size()));
  frame.Raw(body.bytes());
  for (const char byte : frame.bytes()) {
    ASSERT_EQ(send(trees_[3].parent.socket.fd(), &byte, 1, MSG_NOSIGNAL), 1);
    usleep(500);
  }
  EXPECT_EQ(LossSeenBy(0).reason, "died in pieces");
}

// Else its parent's death would go unnoticed.
TEST_F(VigilTest, AForkedChildHoldsNoSocket) {
  StartAllBut(-1);
  const pid_t child = fork();
  if (child == 0) {
    int sockets = 0;
    for (int fd = 3; fd < 256; ++fd) {
      int type = 0;
      socklen_t bytes = sizeof(type);
      if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0) ++sockets;
    }
    _exit(sockets);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(vigils_[0]->losses(), 0u);
}

}  // namespace
}  // namespace trnccl
