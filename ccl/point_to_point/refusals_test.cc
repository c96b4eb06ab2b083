// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/refusals.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ccl/point_to_point/message.h"
#include "ccl/point_to_point/test_world.h"

namespace trnccl {
namespace {

constexpr int kRanks = 3;
constexpr size_t kLongBytes = 5000;  // more than TestWorld sends eagerly

Transfer Send(int peer, int64_t tag) {
  return {.direction = Transfer::kSend, .peer = peer, .tag = tag};
}

Transfer Receive(int peer, int64_t tag) {
  return {.direction = Transfer::kReceive, .peer = peer, .tag = tag};
}

class RefusalsTest : public testing::TestWithParam<Wire> {
 protected:
  TestWorld world_{{.ranks = kRanks, .wire = GetParam()}};

  std::string WhyOf(int rank, int refuser, const Transfer& waiting) {
    const Refusals::Heard* heard = world_[rank].RefusalBy(refuser, waiting);
    return heard == nullptr ? "" : heard->why;
  }
};

TEST_P(RefusalsTest, ARefusedSendConcernsTheReceivesThatWouldTakeIt) {
  world_[1].Refuse(Send(0, 5), "because");
  world_.StepAll();
  EXPECT_EQ(WhyOf(0, 1, Receive(1, 5)), "because");
  EXPECT_EQ(WhyOf(0, 1, Receive(1, kAnyTag)), "because");
  EXPECT_EQ(WhyOf(0, 1, Receive(kAnySource, 5)), "because");
  EXPECT_EQ(WhyOf(0, 1, Receive(1, 6)), "");
  EXPECT_EQ(WhyOf(0, 1, Receive(2, 5)), "");
  EXPECT_EQ(WhyOf(0, 1, Send(1, 5)), "");
  EXPECT_EQ(WhyOf(0, 2, Receive(kAnySource, 5)), "");
  EXPECT_EQ(WhyOf(2, 1, Receive(1, 5)), "");
}

TEST_P(RefusalsTest, ARefusedReceiveConcernsTheSendsThatItWouldTake) {
  world_[1].Refuse(Receive(0, 5), "because");
  world_[1].Refuse(Receive(2, kAnyTag), "of any tag");
  world_.StepAll();
  EXPECT_EQ(WhyOf(0, 1, Send(1, 5)), "because");
  EXPECT_EQ(WhyOf(0, 1, Send(1, 6)), "");
  EXPECT_EQ(WhyOf(0, 1, Send(2, 5)), "");
  EXPECT_EQ(WhyOf(0, 1, Receive(1, 5)), "");
  EXPECT_EQ(WhyOf(2, 1, Send(1, 123)), "of any tag");
  world_[2].Refuse(Receive(kAnySource, 7), "of any rank");
  world_.StepAll();
  EXPECT_EQ(WhyOf(0, 2, Send(2, 7)), "of any rank");
  EXPECT_EQ(WhyOf(1, 2, Send(2, 7)), "of any rank");
}

TEST_P(RefusalsTest, OneOfNoPeerIsNobodys) {
  for (const int peer : {-2, -1, 1, kRanks, 1 << 30})
    world_[1].Refuse(Send(peer, 5), "because");
  world_[1].Refuse(Receive(-2, 5), "because");
  world_.StepAll();
  for (const int rank : {0, 2}) {
    EXPECT_EQ(WhyOf(rank, 1, Receive(1, 5)), "");
    EXPECT_EQ(WhyOf(rank, 1, Send(1, 5)), "");
  }
  EXPECT_FALSE(world_[1].busy());
}

// Before the receive is made, or after.
TEST_P(RefusalsTest, WhatMovesIsNotConcerned) {
  for (const bool receive_first : {false, true}) {
    GuardedBuffer source(kLongBytes), destination(kLongBytes);
    Transfer send = SendOf(source, 0, 5);
    Transfer receive = ReceiveInto(destination, 1, 5);
    Transfer next = receive;
    if (receive_first) {
      world_[0].Start(&receive);
      world_[0].Start(&next);
    }
    world_[1].Start(&send);
    world_[1].Refuse(Send(0, 5), "because");
    for (int i = 0; i < 20; ++i) world_.StepAll();
    if (!receive_first) {
      world_[0].Start(&receive);
      world_[0].Start(&next);
    }
    EXPECT_EQ(WhyOf(0, 1, receive), "");
    EXPECT_EQ(WhyOf(0, 1, next), "because");
    ASSERT_TRUE(world_.RunUntil({&send, &receive}));
    EXPECT_TRUE(receive.status.ok());
    EXPECT_EQ(WhyOf(0, 1, next), "because");
    world_[0].FailAll(absl::AbortedError("tested"));
  }
}

// However often it was refused, and whichever kind it is.
TEST_P(RefusalsTest, ACallThatIsMadeAfterAllTakesThemBack) {
  GuardedBuffer a(8), b(8);
  for (int i = 0; i < 3; ++i) world_[1].Refuse(Send(0, 5), "because");
  world_[1].Refuse(Send(0, 6), "another");
  world_[1].Refuse(Send(2, 5), "to another");
  world_[1].Refuse(Receive(0, 5), "a receive");
  Transfer send = SendOf(a, 0, 5);
  world_[1].Start(&send);
  for (int i = 0; i < 20; ++i) world_.StepAll();
  EXPECT_EQ(WhyOf(0, 1, Receive(1, 5)), "");
  EXPECT_EQ(WhyOf(0, 1, Receive(1, 6)), "another");
  EXPECT_EQ(WhyOf(2, 1, Receive(1, 5)), "to another");
  EXPECT_EQ(WhyOf(0, 1, Send(1, 5)), "a receive");
  // A receive of any tag would have taken that one's message too.
  Transfer receive = ReceiveInto(b, kAnySource, kAnyTag);
  world_[1].Start(&receive);
  for (int i = 0; i < 20; ++i) world_.StepAll();
  EXPECT_EQ(WhyOf(0, 1, Send(1, 5)), "");
  world_[1].FailAll(absl::AbortedError("tested"));
}

// The tag was what was wrong with it.
TEST_P(RefusalsTest, ATagThatCannotBeIsTakenBackByAnother) {
  world_[1].Refuse(Send(0, -7), "because");
  world_.StepAll();
  EXPECT_EQ(WhyOf(0, 1, Receive(1, 7)), "");
  EXPECT_EQ(WhyOf(0, 1, Receive(1, kAnyTag)), "because");
  GuardedBuffer buffer(8);
  Transfer send = SendOf(buffer, 0, 7);
  world_[1].Start(&send);
  for (int i = 0; i < 20; ++i) world_.StepAll();
  EXPECT_EQ(WhyOf(0, 1, Receive(1, kAnyTag)), "");
}

TEST_P(RefusalsTest, WhatBothRefuseIsNobodysToWaitFor) {
  for (const bool heard_first : {false, true}) {
    world_[1].Refuse(Send(0, 5), "one");
    if (heard_first) world_.StepAll();
    world_[0].Refuse(Receive(1, 5), "the other");
    for (int i = 0; i < 20; ++i) world_.StepAll();
    EXPECT_EQ(WhyOf(0, 1, Receive(1, 5)), "");
    EXPECT_EQ(WhyOf(1, 0, Send(0, 5)), "");
    // The next call of either may have to wait for long.
    GuardedBuffer a(kLongBytes), b(kLongBytes);
    Transfer send = SendOf(a, 0, 5);
    Transfer receive = ReceiveInto(b, 1, 5);
    world_[1].Start(&send);
    for (int i = 0; i < 20; ++i) world_.StepAll();
    EXPECT_EQ(WhyOf(1, 0, send), "");
    world_[0].Start(&receive);
    ASSERT_TRUE(world_.RunUntil({&send, &receive}));
    for (int i = 0; i < 20; ++i) world_.StepAll();
  }
  // Then one refuses alone.
  world_[0].Refuse(Receive(1, 5), "alone");
  for (int i = 0; i < 20; ++i) world_.StepAll();
  EXPECT_EQ(WhyOf(1, 0, Send(0, 5)), "alone");
}

TEST_P(RefusalsTest, WaitForRoomOnTheLink) {
  GuardedBuffer buffer(8);
  std::vector<Transfer> sends(300, SendOf(buffer, 0, 4));
  for (Transfer& send : sends) world_[1].Start(&send);
  world_[1].Refuse(Send(0, 5), std::string(1 << 20, 'x'));
  EXPECT_TRUE(world_[1].busy());
  for (int i = 0; i < 500; ++i) world_.StepAll();
  EXPECT_FALSE(world_[1].busy());
  EXPECT_EQ(WhyOf(0, 1, Receive(1, 5)).size(), kMaxWhyBytes);
}

// Nor does it tell what it couldn't take back.
TEST(Refusals, KeepABoundedNumber) {
  Refusals refusals(2);
  for (int64_t tag = 0; tag < 1000; ++tag) {
    EXPECT_EQ(refusals.Note(1, {Transfer::kSend, tag}),
              tag < static_cast<int64_t>(Refusals::kMostCalls));
    refusals.Hear(1, {Transfer::kSend, tag}, "because");
  }
  EXPECT_NE(refusals.Against(1, Receive(1, 0)), nullptr);
  EXPECT_EQ(refusals.Against(1, Receive(1, 999)), nullptr);
  int told = 0;
  for (int64_t tag = 0; tag < 1000; ++tag)
    refusals.TakeBack(Send(1, tag), [&](int, const RefusedCall&) { ++told; });
  EXPECT_EQ(told, static_cast<int>(Refusals::kMostCalls));
  EXPECT_TRUE(refusals.Note(1, {Transfer::kSend, 999}));
}

INSTANTIATE_TEST_SUITE_P(Wires, RefusalsTest,
                         testing::Values(Wire::kInproc, Wire::kShm));

}  // namespace
}  // namespace trnccl
