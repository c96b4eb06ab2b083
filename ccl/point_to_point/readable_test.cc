// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Messages that the receiver reads where the sender keeps them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "ccl/base/origin.h"
#include "ccl/point_to_point/message.h"
#include "ccl/point_to_point/test_world.h"
#include "transports/shared_memory.h"

namespace trnccl {
namespace {

using ::testing::HasSubstr;

// More than is read at once, and no whole number of that.
constexpr size_t kBytes = (1 << 20) + 12'345;
constexpr TestWorld::Options kReads = {.wire = Wire::kShm,
                                       .unmapped_min_bytes = 1};

class Readable : public testing::Test {
 protected:
  Readable() { source_.Fill({.source = 0, .tag = 7}); }

  GuardedBuffer source_{kBytes};
  GuardedBuffer destination_{kBytes + 3};
  Transfer send_ = SendOf(source_, 1, 7);
  Transfer receive_ = ReceiveInto(destination_, 0, 7);
};

TEST_F(Readable, ArriveWithNothingForTheSenderToDo) {
  for (const bool receive_first : {false, true}) {
    TestWorld world(kReads);
    if (receive_first) world[1].Start(&receive_);
    world[0].Start(&send_);
    EXPECT_THAT(world[0].Describe(send_), HasSubstr("still reads"));
    world.Step(1);
    if (!receive_first) world[1].Start(&receive_);
    // Bounded pieces, so that its caller gets to look at other things.
    world.Step(1);
    EXPECT_FALSE(receive_.done);
    EXPECT_TRUE(world[1].busy());
    for (int i = 0; i < 10; ++i) world.Step(1);
    EXPECT_TRUE(receive_.done && receive_.status.ok()) << receive_.status;
    EXPECT_EQ(receive_.received_bytes, kBytes);
    EXPECT_TRUE(destination_.Holds({.source = 0, .tag = 7}, kBytes));
    EXPECT_FALSE(world[1].busy());
    EXPECT_FALSE(send_.done);
    world.Step(0);
    EXPECT_TRUE(send_.done && send_.status.ok()) << send_.status;
    destination_ = GuardedBuffer(kBytes + 3);
    receive_.buffer = destination_.data();
  }
}

TEST_F(Readable, AreAllThatPeersMapAndOthersFromASizeOn) {
  TestWorld world({.wire = Wire::kShm, .unmapped_min_bytes = kBytes + 1});
  std::byte* shared = *AllocateShared(kBytes);
  std::memcpy(shared, source_.data(), kBytes);
  for (std::byte* buffer : {shared, source_.data()}) {
    send_.buffer = buffer;
    world[0].Start(&send_);
    EXPECT_EQ(send_.stage,
              buffer == shared ? Transfer::kReadable : Transfer::kOffered);
    world[1].Start(&receive_);
    ASSERT_TRUE(world.RunUntil({&send_, &receive_}));
    EXPECT_TRUE(destination_.Holds({.source = 0, .tag = 7}, kBytes));
    std::memset(destination_.data(), 0, kBytes);
  }
  EXPECT_TRUE(FreeShared(shared).ok());
}

TEST_F(Readable, ComeBySlicesWhereTheReceiverCannotReachThem) {
  TestWorld world(kReads);
  world[0].Start(&send_);
  // What the owner freed meanwhile can't be mapped, for one.
  std::byte* shared = *AllocateShared(kBytes);
  std::memcpy(shared, source_.data(), kBytes);
  Transfer second = SendOf(source_, 1, 8);
  second.buffer = shared;
  world[0].Start(&second);
  ASSERT_EQ(second.stage, Transfer::kReadable);
  ASSERT_TRUE(FreeShared(shared).ok());
  second.buffer = source_.data();
  GuardedBuffer other(kBytes);
  Transfer into_other = ReceiveInto(other, 0, 8);
  world[1].Start(&into_other);
  world[1].Start(&receive_);
  ASSERT_TRUE(world.RunUntil({&second, &into_other, &send_, &receive_}));
  EXPECT_TRUE(into_other.status.ok()) << into_other.status;
  EXPECT_TRUE(other.Holds({.source = 0, .tag = 7}, kBytes));
  EXPECT_TRUE(destination_.Holds({.source = 0, .tag = 7}, kBytes));
}

TEST_F(Readable, AreRefusedWhereTheyDoNotFit) {
  TestWorld world(kReads);
  receive_.bytes = kBytes - 1;
  world[1].Start(&receive_);
  world[0].Start(&send_);
  ASSERT_TRUE(world.RunUntil({&send_, &receive_}));
  EXPECT_EQ(send_.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(receive_.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(destination_.Untouched());
}

// The receive is done only once the sender will hear of it.
TEST_F(Readable, AreDoneOnceTheAnswerHasLeft) {
  TestWorld world(kReads);
  GuardedBuffer small(8);
  std::deque<Transfer> ahead(20, SendOf(small, 0, 1));
  world[0].Start(&send_);
  for (Transfer& send : ahead) world[1].Start(&send);
  world[1].Start(&receive_);
  for (int i = 0; i < 20; ++i) world.Step(1);
  EXPECT_FALSE(receive_.done);
  ASSERT_TRUE(world.RunUntil({&receive_, &send_}));
}

// ---- Senders that give up --------------------------------------------------

void ExpectGivenUp(TestWorld& world, Transfer& receive) {
  const absl::StatusOr<bool> moved = world[1].Advance();
  ASSERT_FALSE(moved.ok());
  EXPECT_EQ(OriginOf(moved.status()), 0);
  EXPECT_THAT(std::string(moved.status().message()),
              HasSubstr("tag 7: shm: rank 0 has given up"));
  world[1].FailAll(moved.status());
  EXPECT_TRUE(receive.done);
  EXPECT_FALSE(receive.status.ok());
}

TEST_F(Readable, AreLeftAloneByReceiversThatComeTooLate) {
  TestWorld world(kReads);
  world[0].Start(&send_);
  world.Step(1);
  EXPECT_TRUE(world[0].Leave().ok());
  world[0].FailAll(absl::DeadlineExceededError("too late"));
  EXPECT_TRUE(send_.done);
  world[1].Start(&receive_);
  ExpectGivenUp(world, receive_);
  EXPECT_TRUE(destination_.Untouched());
}

TEST_F(Readable, AreNoSuccessWhereTheSenderGivesUpInTheMiddle) {
  TestWorld world(kReads);
  world[0].Start(&send_);
  world[1].Start(&receive_);
  world.Step(1);
  EXPECT_GT(receive_.moved_bytes, 0u);
  EXPECT_TRUE(world[0].Leave().ok());
  ExpectGivenUp(world, receive_);
}

TEST_F(Readable, OfOthersGoOnWhereOneGivesUp) {
  TestWorld::Options options = kReads;
  options.ranks = 3;
  TestWorld world(options);
  Transfer unreceived = SendOf(source_, 1, 9);
  world[2].Start(&unreceived);
  EXPECT_TRUE(world[2].Leave().ok());
  world[2].FailAll(absl::AbortedError("destroyed"));
  world[0].Start(&send_);
  world[1].Start(&receive_);
  ASSERT_TRUE(world.RunUntil({&send_, &receive_}));
  EXPECT_TRUE(destination_.Holds({.source = 0, .tag = 7}, kBytes));
}

// ---- Broken peers ----------------------------------------------------------

// Rank 1 of these worlds writes to its transport itself.
void SendControl(TestWorld& world, const MessageHeader& header,
                 const MemoryOffer* memory) {
  const LinkId links[] = {world.route(1, 0).Link(0)};
  const size_t bytes = memory == nullptr ? kLengthBytes : kReadableBytes;
  std::byte* slice = world.transport(1).Reserve(links, bytes);
  ASSERT_NE(slice, nullptr);
  const uint64_t length = header.bytes;
  std::memcpy(slice, &length, sizeof(length));
  if (memory != nullptr)
    std::memcpy(slice + kLengthBytes, memory, sizeof(*memory));
  ASSERT_TRUE(world.transport(1).Send(
      links,
      {.envelope = SealMessage(header, TestWorld::kCookie), .bytes = bytes}));
}

void ExpectRefused(TestWorld& world, const char* cause) {
  const absl::StatusOr<bool> moved = world[0].Advance();
  ASSERT_FALSE(moved.ok()) << cause;
  EXPECT_THAT(std::string(moved.status().message()), HasSubstr(cause));
  world[0].FailAll(moved.status());
}

TEST_F(Readable, FromABrokenPeerAreErrors) {
  const MessageHeader readable = {.kind = MessageKind::kReadable,
                                  .bytes = 1000};
  for (const std::byte fill : {std::byte{0}, std::byte{0xff}}) {
    TestWorld world(kReads);
    Transfer receive = ReceiveInto(destination_, 1, 0);
    world[0].Start(&receive);
    MemoryOffer offer;
    offer.bytes.fill(fill);
    SendControl(world, readable, &offer);
    ExpectRefused(world, "rank 1 offers what isn't 1000 bytes");
    EXPECT_TRUE(destination_.Untouched());
  }
  TestWorld world(kReads);
  SendControl(world, readable, nullptr);
  ExpectRefused(world, "8 bytes instead of 48");
}

TEST_F(Readable, ThatNobodyCanHaveReadAreErrors) {
  MessageHeader taken = {.kind = MessageKind::kTaken, .bytes = kBytes};
  for (const bool readable : {true, false}) {
    TestWorld::Options options = kReads;
    if (!readable) options.unmapped_min_bytes = SIZE_MAX;
    TestWorld world(options);
    world[0].Start(&send_);
    taken.bytes = readable ? kBytes - 1 : kBytes;
    SendControl(world, taken, nullptr);
    ExpectRefused(world, "bytes of offer 0, which it can't have");
    EXPECT_FALSE(send_.status.ok());
  }
  TestWorld world(kReads);
  SendControl(world, taken, nullptr);
  ExpectRefused(world, "offer 0, which wasn't made");
}

}  // namespace
}  // namespace trnccl
