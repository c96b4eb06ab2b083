// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Rank 1 of these worlds writes to its transport itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "ccl/point_to_point/message.h"
#include "ccl/point_to_point/test_world.h"

namespace trnccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kControlLane = 0;
constexpr int kDataLane = 1;

void SendRaw(TestWorld& world, int lane, const Envelope& envelope,
             const std::string& payload) {
  const LinkId links[] = {world.route(1, 0).Link(lane)};
  std::byte* slice = world.transport(1).Reserve(links, payload.size());
  ASSERT_NE(slice, nullptr);
  if (!payload.empty()) std::memcpy(slice, payload.data(), payload.size());
  ASSERT_TRUE(world.transport(1).Send(
      links, {.envelope = envelope, .bytes = payload.size()}));
}

void SendMessage(TestWorld& world, int lane, const MessageHeader& header,
                 const std::string& payload) {
  SendRaw(world, lane, SealMessage(header, TestWorld::kCookie), payload);
}

std::string Length(uint64_t bytes) {
  std::string payload(sizeof(bytes), '\0');
  std::memcpy(payload.data(), &bytes, sizeof(bytes));
  return payload;
}

void ExpectRefused(TestWorld& world, const char* cause) {
  const absl::StatusOr<bool> moved = world[0].Advance();
  ASSERT_FALSE(moved.ok()) << cause;
  EXPECT_EQ(moved.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(moved.status().message()),
              AllOf(HasSubstr("rank 0: "), HasSubstr("from rank 1: "),
                    HasSubstr(cause)));
  // It stays an error, and the transfers can still be failed.
  EXPECT_FALSE(world[0].Advance().ok());
  world[0].FailAll(moved.status());
}

void ExpectControlRefused(const MessageHeader& header,
                          const std::string& payload, const char* cause) {
  SCOPED_TRACE(cause);
  TestWorld world({});
  SendMessage(world, kControlLane, header, payload);
  ExpectRefused(world, cause);
}

TEST(BrokenPeer, SendsAnotherCommunicatorsMessage) {
  TestWorld world({});
  SendRaw(world, kControlLane, SealMessage({}, TestWorld::kCookie + 1), "");
  ExpectRefused(world, "another communicator");
}

TEST(BrokenPeer, SendsACollectivesMessage) {
  TestWorld world({});
  SendRaw(world, kControlLane,
          {.words = {uint64_t{TestWorld::kCookie} << 32, 1, 2}}, "");
  ExpectRefused(world, "another communicator");
}

TEST(BrokenPeer, SendsUnknownOrMisshapenMessages) {
  using enum MessageKind;
  ExpectControlRefused({.kind = MessageKind{0}}, "", "kind 0");
  ExpectControlRefused({.kind = MessageKind{10}}, "", "kind 10");
  ExpectControlRefused({.kind = kDeclined, .id = 2}, "", "direction 2");
  ExpectControlRefused({.kind = kMade, .id = 9}, "", "direction 9");
  ExpectControlRefused({.kind = kData}, "x", "data on control lane");
  ExpectControlRefused({.type = DataType{kDataTypes}}, "", "type 17");
  ExpectControlRefused({.tag = -1}, "", "tag -1");
  ExpectControlRefused({.type = DataType::kFloat32}, "abc", "whole number");
  ExpectControlRefused({.kind = kOffer}, "abc", "3 bytes instead of 8");
  ExpectControlRefused({.kind = kOffer, .type = DataType::kFloat32},
                       Length(UINT64_MAX), "whole number");
  ExpectControlRefused({.kind = kAccept, .id = 3}, "", "0 bytes instead");
  ExpectControlRefused({.kind = kAccept, .id = 3}, Length(9), "offer 3");
  ExpectControlRefused({.kind = kRefuse, .id = 3}, Length(9), "offer 3");
  TestWorld world({});
  Envelope envelope = SealMessage({}, TestWorld::kCookie);
  envelope.words[2] = uint64_t{1} << 32;
  SendRaw(world, kControlLane, envelope, "");
  ExpectRefused(world, "id 4294967296");
}

TEST(BrokenPeer, OffersWhatNoBufferCouldHold) {
  TestWorld world({});
  GuardedBuffer buffer(100);
  Transfer receive = ReceiveInto(buffer, 1, 0);
  world[0].Start(&receive);
  SendMessage(world, kControlLane, {.kind = MessageKind::kOffer},
              Length(UINT64_MAX));
  world.Step(0);
  EXPECT_EQ(receive.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(buffer.Untouched());
}

TEST(BrokenPeer, AnswersAnOfferTwiceOrRefusesItForNoReason) {
  GuardedBuffer source(5000);
  const MessageHeader accept = {.kind = MessageKind::kAccept, .id = 0};
  const MessageHeader refuse = {.kind = MessageKind::kRefuse, .id = 0};
  for (const bool twice : {true, false}) {
    TestWorld world({});
    Transfer send = SendOf(source, 1, 0);
    world[0].Start(&send);
    SendMessage(world, kControlLane, twice ? accept : refuse, Length(5000));
    if (twice) {
      world.Step(0);
      SendMessage(world, kControlLane, accept, Length(5000));
    }
    ExpectRefused(world, twice ? "offer 0, which" : "refuses offer 0");
    EXPECT_TRUE(send.done);
    EXPECT_EQ(send.status.code(), absl::StatusCode::kUnavailable);
  }
}

// Rank 0 waits for the 20 bytes of offer 5 when this data comes.
void ExpectDataRefused(const MessageHeader& header, const std::string& payload,
                       const char* cause) {
  SCOPED_TRACE(cause);
  TestWorld world({});
  GuardedBuffer buffer(30);
  Transfer receive = ReceiveInto(buffer, 1, 0);
  world[0].Start(&receive);
  SendMessage(world, kControlLane, {.kind = MessageKind::kOffer, .id = 5},
              Length(20));
  world.Step(0);
  SendMessage(world, kDataLane, header, payload);
  ExpectRefused(world, cause);
  EXPECT_TRUE(buffer.Untouched());
}

TEST(BrokenPeer, SendsDataThatDoesNotBelong) {
  const std::string few(10, 'x'), many(21, 'x');
  using enum MessageKind;
  ExpectDataRefused({.kind = kData, .id = 6}, few, "offer 6");
  ExpectDataRefused({.kind = kData, .id = 5}, many, "21 bytes of offer 5");
  ExpectDataRefused({.kind = kData, .id = 5}, "", "0 bytes of offer 5");
  ExpectDataRefused({.kind = kEager, .id = 5}, few, "offer 5");
  ExpectDataRefused({.kind = MessageKind{9}, .id = 5}, few, "kind 9");
}

TEST(BrokenPeer, SendsRandomWords) {
  constexpr uint32_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 300; ++i) {
    TestWorld world({});
    GuardedBuffer buffer(40);
    Transfer receive = ReceiveInto(buffer, kAnySource, kAnyTag);
    world[0].Start(&receive);
    Envelope envelope =
        SealMessage({.kind = static_cast<MessageKind>(random() % 10),
                     .type = static_cast<DataType>(random() % 20),
                     .id = static_cast<uint32_t>(random()),
                     .tag = static_cast<int64_t>(random())},
                    TestWorld::kCookie);
    if (random() % 4 == 0) envelope.words[random() % 3] ^= random();
    SendRaw(world, kControlLane, envelope, std::string(random() % 60, 'x'));
    const absl::StatusOr<bool> moved = world[0].Advance();
    EXPECT_EQ(moved.ok(), moved.status().message().empty());
    world[0].FailAll(absl::AbortedError("the end"));
    EXPECT_TRUE(receive.done);
  }
}

}  // namespace
}  // namespace trnccl
