// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/point_to_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "ccl/point_to_point/test_world.h"

namespace trnccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kSliceBytes = 1024;  // TestWorld's: longer ones are offered
const size_t kLengths[] = {0,
                           1,
                           8,
                           kSliceBytes - 1,
                           kSliceBytes,
                           kSliceBytes + 1,
                           5 * kSliceBytes + 3};

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

TEST(PointToPoint, DeliversEveryLengthWhicheverSideComesFirst) {
  for (const size_t bytes : kLengths) {
    for (const bool receive_first : {false, true}) {
      SCOPED_TRACE(testing::Message() << bytes << " " << receive_first);
      TestWorld world({});
      GuardedBuffer source(bytes), destination(bytes + 5);
      source.Fill({.source = 0, .tag = 7});
      Transfer send = SendOf(source, 1, 7);
      Transfer receive = ReceiveInto(destination, 0, 7);
      if (receive_first) world[1].Start(&receive);
      world[0].Start(&send);
      world.StepAll();
      if (!receive_first) world[1].Start(&receive);
      ASSERT_TRUE(world.RunUntil({&send, &receive}));
      EXPECT_TRUE(send.status.ok()) << send.status;
      EXPECT_TRUE(receive.status.ok()) << receive.status;
      EXPECT_EQ(receive.source, 0);
      EXPECT_EQ(receive.received_tag, 7);
      EXPECT_EQ(receive.received_bytes, bytes);
      EXPECT_TRUE(destination.Holds({.source = 0, .tag = 7}, bytes));
      EXPECT_FALSE(world[0].busy());
      EXPECT_FALSE(world[1].busy());
    }
  }
}

TEST(PointToPoint, ShortSendIsDoneOnceItsSliceIsSent) {
  TestWorld world({});
  GuardedBuffer source(8);
  Transfer first = SendOf(source, 1, 0), second = SendOf(source, 1, 1);
  world[0].Start(&first);
  EXPECT_TRUE(first.done);
  // The link of one message is full until the peer takes it.
  world[0].Start(&second);
  EXPECT_FALSE(second.done);
  EXPECT_TRUE(world[0].busy());
  ASSERT_TRUE(world.RunUntil({&second}));
}

TEST(PointToPoint, FullLinkHoldsUpNoOtherPeer) {
  TestWorld world({.ranks = 3});
  GuardedBuffer source(8), destination(8);
  source.Fill({.source = 0, .tag = 5});
  std::vector<Transfer> to_absent(100, SendOf(source, 1, 0));
  for (Transfer& send : to_absent) world[0].Start(&send);
  Transfer send = SendOf(source, 2, 5);
  Transfer receive = ReceiveInto(destination, 0, 5);
  world[0].Start(&send);
  world[2].Start(&receive);
  for (int i = 0; i < 10; ++i) {
    world.Step(0);
    world.Step(2);
  }
  EXPECT_TRUE(send.done);
  EXPECT_TRUE(receive.done);
  EXPECT_TRUE(destination.Holds({.source = 0, .tag = 5}, 8));
  EXPECT_FALSE(to_absent.back().done);
}

TEST(PointToPoint, UnmatchedTagsHoldUpNoOther) {
  TestWorld world({});
  std::deque<GuardedBuffer> sources, destinations;
  std::vector<Transfer> sends, receives;
  constexpr int kTags = 60;
  for (int tag = 0; tag < kTags; ++tag) {
    const size_t bytes = tag % 3 == 0 ? 3 * kSliceBytes + 1 : 100;
    sources.emplace_back(bytes).Fill({.source = 0, .tag = tag});
    destinations.emplace_back(bytes);
    sends.push_back(SendOf(sources.back(), 1, tag));
    receives.push_back(ReceiveInto(destinations.back(), 0, tag));
  }
  for (Transfer& send : sends) world[0].Start(&send);
  for (int tag = kTags - 1; tag >= 0; --tag) {
    const size_t i = static_cast<size_t>(tag);
    world[1].Start(&receives[i]);
    ASSERT_TRUE(world.RunUntil({&sends[i], &receives[i]})) << tag;
    EXPECT_TRUE(destinations[i].Holds({.source = 0, .tag = tag},
                                      destinations[i].size()));
  }
}

TEST(PointToPoint, MessagesOfOnePairAndTagKeepTheirOrder) {
  for (const bool receive_first : {false, true}) {
    TestWorld world({});
    std::deque<GuardedBuffer> sources, destinations;
    std::vector<Transfer> sends, receives;
    std::vector<const Transfer*> all;
    constexpr int kMessages = 40;
    constexpr size_t kMostBytes = 4 * kSliceBytes;
    sends.reserve(kMessages);
    receives.reserve(kMessages);
    for (int number = 0; number < kMessages; ++number) {
      const size_t bytes = number % 3 == 1 ? kMostBytes : 10;
      sources.emplace_back(bytes).Fill({.tag = 3, .number = number});
      destinations.emplace_back(kMostBytes);
      sends.push_back(SendOf(sources.back(), 1, 3));
      receives.push_back(ReceiveInto(destinations.back(), 0, 3));
      all.push_back(&sends.back());
      all.push_back(&receives.back());
    }
    if (receive_first) {
      for (Transfer& receive : receives) world[1].Start(&receive);
    }
    for (Transfer& send : sends) world[0].Start(&send);
    for (int i = 0; i < 100; ++i) world.StepAll();
    if (!receive_first) {
      for (Transfer& receive : receives) world[1].Start(&receive);
    }
    ASSERT_TRUE(world.RunUntil(all));
    for (int number = 0; number < kMessages; ++number) {
      const size_t i = static_cast<size_t>(number);
      EXPECT_TRUE(destinations[i].Holds({.tag = 3, .number = number},
                                        sources[i].size()))
          << number;
    }
  }
}

// ---- Wildcards -------------------------------------------------------------

// Three messages, of ranks 0, 1, 0 with tags 1, 2, 3, arrive at rank 2 in that
// order; these receives are posted in each order and take them in turn.
struct Wanted {
  int source;
  int64_t tag;
};

std::vector<int> ExpectedMessages(const std::vector<Wanted>& receives) {
  const std::vector<Wanted> messages = {{0, 1}, {1, 2}, {0, 3}};
  std::vector<int> taken(receives.size(), -1);
  for (size_t message = 0; message < messages.size(); ++message) {
    for (size_t i = 0; i < receives.size(); ++i) {
      const Wanted& wanted = receives[i];
      if (taken[i] >= 0 ||
          (wanted.source != kAnySource &&
           wanted.source != messages[message].source) ||
          (wanted.tag != kAnyTag && wanted.tag != messages[message].tag)) {
        continue;
      }
      taken[i] = static_cast<int>(message);
      break;
    }
  }
  return taken;
}

void CheckPostedFirst(const std::vector<Wanted>& wanted) {
  TestWorld world({.ranks = 3});
  GuardedBuffer source(8);
  std::deque<GuardedBuffer> destinations;
  std::vector<Transfer> receives;
  for (const auto& [peer, tag] : wanted) {
    destinations.emplace_back(8);
    receives.push_back(ReceiveInto(destinations.back(), peer, tag));
  }
  for (Transfer& receive : receives) world[2].Start(&receive);
  const int senders[] = {0, 1, 0};
  for (int64_t tag = 1; tag <= 3; ++tag) {
    const int sender = senders[tag - 1];
    source.Fill({.source = sender, .tag = tag});
    Transfer send = SendOf(source, 2, tag);
    world[sender].Start(&send);
    ASSERT_TRUE(send.done);
    world.Step(2);
  }
  const std::vector<int> expected = ExpectedMessages(wanted);
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(receives[i].done, expected[i] >= 0) << i;
    if (expected[i] < 0) continue;
    EXPECT_EQ(receives[i].received_tag, expected[i] + 1) << i;
    EXPECT_EQ(receives[i].source, expected[i] == 1 ? 1 : 0) << i;
    EXPECT_TRUE(destinations[i].Holds(
        {.source = receives[i].source, .tag = receives[i].received_tag}, 8));
  }
}

TEST(Wildcards, EarliestPostedReceiveTakesTheMessageInEveryOrderOfPosting) {
  std::vector<Wanted> wanted = {
      {kAnySource, kAnyTag}, {0, kAnyTag}, {kAnySource, 2}, {0, 3}};
  std::vector<size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), 0u);
  do {
    std::vector<Wanted> posted;
    for (const size_t i : order) posted.push_back(wanted[i]);
    CheckPostedFirst(posted);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Wildcards, TakeTheEarliestArrivedOfAllSources) {
  for (const size_t bytes : {size_t{8}, 3 * kSliceBytes}) {
    TestWorld world({.ranks = 4});
    std::deque<GuardedBuffer> sources;
    std::vector<Transfer> sends;
    const int senders[] = {2, 0, 1, 2, 0};
    for (const int sender : senders) {
      const int64_t tag = static_cast<int64_t>(sources.size());
      sources.emplace_back(bytes).Fill({.source = sender, .tag = tag});
      sends.push_back(SendOf(sources.back(), 3, tag));
    }
    for (size_t i = 0; i < sends.size(); ++i) {
      world[senders[i]].Start(&sends[i]);
      world.Step(3);
    }
    for (size_t i = 0; i < sends.size(); ++i) {
      GuardedBuffer destination(bytes);
      Transfer receive = ReceiveInto(destination, kAnySource, kAnyTag);
      world[3].Start(&receive);
      ASSERT_TRUE(world.RunUntil({&receive, &sends[i]}));
      EXPECT_EQ(receive.source, senders[i]);
      EXPECT_EQ(receive.received_tag, static_cast<int64_t>(i));
      EXPECT_TRUE(destination.Holds(
          {.source = senders[i], .tag = static_cast<int64_t>(i)}, bytes));
    }
  }
}

// ---- Messages that don't fit their receive ---------------------------------

struct Misfit {
  size_t sent_bytes;
  size_t capacity_bytes;
  DataType wanted_type;
  bool receive_first;
};

void CheckMisfit(const Misfit& misfit) {
  TestWorld world({});
  GuardedBuffer source(misfit.sent_bytes), destination(misfit.capacity_bytes);
  GuardedBuffer next(misfit.sent_bytes);
  source.Fill({.source = 0, .tag = 9});
  Transfer send = SendOf(source, 1, 9), send_next = SendOf(source, 1, 9);
  Transfer receive = ReceiveInto(destination, 0, 9);
  Transfer receive_next = ReceiveInto(next, 0, 9);
  receive.type = misfit.wanted_type;
  if (misfit.receive_first) world[1].Start(&receive);
  world[0].Start(&send);
  world.StepAll();
  if (!misfit.receive_first) world[1].Start(&receive);
  ASSERT_TRUE(world.RunUntil({&send, &receive}));
  const auto names_all =
      AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("tag 9"),
            HasSubstr(std::to_string(misfit.sent_bytes) + " bytes of uint8"),
            HasSubstr(std::to_string(misfit.capacity_bytes) + " bytes of " +
                      std::string(Name(misfit.wanted_type))));
  EXPECT_EQ(receive.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(receive.status), names_all);
  EXPECT_TRUE(destination.Untouched());
  if (misfit.sent_bytes > kSliceBytes) {
    EXPECT_EQ(send.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Text(send.status), names_all);
  } else {
    EXPECT_TRUE(send.status.ok()) << send.status;
  }
  world[0].Start(&send_next);
  world[1].Start(&receive_next);
  ASSERT_TRUE(world.RunUntil({&send_next, &receive_next}));
  EXPECT_TRUE(receive_next.status.ok()) << receive_next.status;
  EXPECT_TRUE(next.Holds({.source = 0, .tag = 9}, misfit.sent_bytes));
}

TEST(PointToPoint, RefusesLongerMessagesAndOtherTypesAndGoesOn) {
  for (const size_t bytes : {size_t{16}, 4 * kSliceBytes}) {
    for (const bool receive_first : {false, true}) {
      CheckMisfit({bytes, bytes - 1, DataType::kUint8, receive_first});
      CheckMisfit({bytes, 0, DataType::kUint8, receive_first});
      CheckMisfit({bytes, bytes, DataType::kFloat32, receive_first});
    }
  }
}

TEST(PointToPoint, RefusesBadCallsAtOnce) {
  TestWorld world({});
  GuardedBuffer buffer(8);
  const auto refused = [&world](Transfer transfer, const char* cause) {
    world[0].Start(&transfer);
    EXPECT_TRUE(transfer.done);
    EXPECT_EQ(transfer.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Text(transfer.status),
                AllOf(HasSubstr("rank 0: "), HasSubstr(cause)));
  };
  refused(SendOf(buffer, 2, 0), "ranks 0 to 1");
  refused(SendOf(buffer, kAnySource, 0), "ranks 0 to 1");
  refused(ReceiveInto(buffer, -2, 0), "ranks 0 to 1");
  refused(SendOf(buffer, 1, kAnyTag), "tags");
  refused(ReceiveInto(buffer, 1, -2), "tags");
  Transfer part = SendOf(buffer, 1, 0);
  part.type = DataType::kFloat32;
  part.bytes = 7;
  refused(part, "float32");
  Transfer null = SendOf(buffer, 1, 0);
  null.buffer = nullptr;
  refused(null, "null");
  EXPECT_FALSE(world[0].busy());
}

// ---- Sends to oneself ------------------------------------------------------

TEST(SendToOneself, WorksInBothOrdersAndForEveryLength) {
  for (const size_t bytes : {size_t{0}, size_t{8}, size_t{100'000}}) {
    for (const int from : {0, kAnySource}) {
      for (const bool receive_first : {false, true}) {
        TestWorld world({.ranks = 1});
        GuardedBuffer source(bytes), destination(bytes + 1);
        source.Fill({.source = 0, .tag = 4});
        Transfer send = SendOf(source, 0, 4);
        Transfer receive = ReceiveInto(destination, from, kAnyTag);
        if (receive_first) world[0].Start(&receive);
        world[0].Start(&send);
        EXPECT_EQ(send.done, receive_first || bytes <= 8);
        if (!send.done) {
          EXPECT_THAT(world[0].Describe(send), HasSubstr("no matching"));
        }
        if (!receive_first) world[0].Start(&receive);
        ASSERT_TRUE(send.done && receive.done);
        EXPECT_TRUE(send.status.ok() && receive.status.ok());
        EXPECT_EQ(receive.source, 0);
        EXPECT_EQ(receive.received_tag, 4);
        EXPECT_TRUE(destination.Holds({.source = 0, .tag = 4}, bytes));
      }
    }
  }
}

TEST(SendToOneself, OfTooLongAMessageFailsBothWhileBothWait) {
  TestWorld world({.ranks = 1});
  GuardedBuffer source(100'000), destination(50);
  Transfer send = SendOf(source, 0, 0);
  Transfer receive = ReceiveInto(destination, 0, 0);
  world[0].Start(&send);
  world[0].Start(&receive);
  EXPECT_EQ(send.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(receive.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(destination.Untouched());
}

// ---- Long messages ---------------------------------------------------------

TEST(LongMessages, CrossEachOtherSentBeforeReceived) {
  for (const size_t bytes : {size_t{8}, size_t{64} << 20}) {
    TestWorld world({.slice_bytes = 1 << 20});
    std::deque<GuardedBuffer> sources, destinations;
    std::deque<Transfer> sends, receives;
    for (const int rank : {0, 1}) {
      sources.emplace_back(bytes).Fill({.source = rank});
      destinations.emplace_back(bytes);
      sends.push_back(SendOf(sources.back(), 1 - rank, 0));
      world[rank].Start(&sends.back());
    }
    for (int i = 0; i < 10; ++i) world.StepAll();
    for (const int rank : {0, 1}) {
      receives.push_back(
          ReceiveInto(destinations[static_cast<size_t>(rank)], 1 - rank, 0));
      world[rank].Start(&receives.back());
    }
    ASSERT_TRUE(
        world.RunUntil({&sends[0], &sends[1], &receives[0], &receives[1]}));
    EXPECT_TRUE(destinations[0].Holds({.source = 1}, bytes));
    EXPECT_TRUE(destinations[1].Holds({.source = 0}, bytes));
  }
}

TEST(LongMessages, ByReferenceAreDoneOnceThePeerHasReadThem) {
  TestWorld world({});
  constexpr size_t kBytes = 10 * kSliceBytes + 7;
  GuardedBuffer source(kBytes), destination(kBytes);
  source.Fill({.source = 0, .tag = 1});
  auto region = world.transport(0).Register(source.data() - 13, kBytes + 26);
  ASSERT_TRUE(region.ok()) << region.status();
  ASSERT_TRUE((*region)->by_reference());
  Transfer send = SendOf(source, 1, 1);
  send.region = region->get();
  Transfer receive = ReceiveInto(destination, 0, 1);
  world[0].Start(&send);
  world[1].Start(&receive);
  while (!receive.done) {
    EXPECT_FALSE(send.done);
    world.Step(1);
    if (!receive.done) world.Step(0);
  }
  EXPECT_FALSE(send.done);
  EXPECT_TRUE(world[0].busy());
  world.Step(0);
  EXPECT_TRUE(send.done);
  EXPECT_TRUE(destination.Holds({.source = 0, .tag = 1}, kBytes));
}

TEST(LongMessages, ByReferenceWaitForAReceiverThatStalls) {
  TestWorld world({});
  GuardedBuffer source(2 * kSliceBytes), destination(2 * kSliceBytes);
  source.Fill({.tag = 1});
  auto region = world.transport(0).Register(source.data(), source.size());
  ASSERT_TRUE(region.ok()) << region.status();
  Transfer send = SendOf(source, 1, 1);
  send.region = region->get();
  Transfer receive = ReceiveInto(destination, 0, 1);
  world[0].Start(&send);
  world[1].Start(&receive);
  world.Step(1);
  world.Step(0);
  world.Step(1);
  // The last slice is sent and not yet read.
  for (int i = 0; i < 10; ++i) world.Step(0);
  EXPECT_FALSE(send.done);
  EXPECT_THAT(world[0].Describe(send), HasSubstr("still reads"));
  ASSERT_TRUE(world.RunUntil({&send, &receive}));
  EXPECT_TRUE(destination.Holds({.tag = 1}, destination.size()));
}

TEST(LongMessages, KeepApartWhenTheirIdsWrap) {
  TestWorld world({.first_id = UINT32_MAX - 4});
  constexpr int kMessages = 10;
  std::deque<GuardedBuffer> sources, destinations;
  std::deque<Transfer> sends, receives;
  std::vector<const Transfer*> all;
  for (int tag = 0; tag < kMessages; ++tag) {
    const size_t bytes = 2 * kSliceBytes + static_cast<size_t>(tag);
    sources.emplace_back(bytes).Fill({.tag = tag});
    destinations.emplace_back(bytes);
    sends.push_back(SendOf(sources.back(), 1, tag));
    receives.push_back(ReceiveInto(destinations.back(), 0, tag));
    world[0].Start(&sends.back());
    all.push_back(&sends.back());
    all.push_back(&receives.back());
  }
  for (int i = 0; i < 20; ++i) world.StepAll();
  for (int i = 0; i < kMessages; ++i) {
    world[1].Start(&receives[static_cast<size_t>(i * 7 % kMessages)]);
  }
  ASSERT_TRUE(world.RunUntil(all));
  EXPECT_EQ(sends.front().id, UINT32_MAX - 4);
  EXPECT_EQ(sends.back().id, 4u);
  for (int tag = 0; tag < kMessages; ++tag) {
    GuardedBuffer& destination = destinations[static_cast<size_t>(tag)];
    EXPECT_TRUE(destination.Holds({.tag = tag}, destination.size())) << tag;
  }
}

TEST(LongMessages, PassOverAnIdThatAnOldOfferStillHolds) {
  TestWorld world({.first_id = UINT32_MAX - 1});
  GuardedBuffer source(2 * kSliceBytes);
  Transfer old = SendOf(source, 1, 0), next = SendOf(source, 1, 1);
  world[0].Start(&old);
  ASSERT_EQ(old.id, UINT32_MAX - 1);
  world.Step(1);
  old.id = UINT32_MAX;  // as if made a whole lap of ids ago
  world[0].Start(&next);
  EXPECT_EQ(next.id, 0u);
}

// ---- Telling and failing ---------------------------------------------------

TEST(PointToPoint, TellsWhatATransferWaitsFor) {
  TestWorld world({});
  GuardedBuffer short_source(8), source(8 * kSliceBytes), destination(64);
  Transfer receive = ReceiveInto(destination, 1, 7);
  world[0].Start(&receive);
  EXPECT_EQ(world[0].Describe(receive),
            "receive of up to 64 bytes from rank 1, tag 7: no matching message "
            "yet");
  Transfer other = SendOf(short_source, 0, 5);
  Transfer queued = SendOf(short_source, 0, 6);
  world[1].Start(&other);
  world[1].Start(&queued);
  EXPECT_EQ(world[1].Describe(queued),
            "send of 8 bytes to rank 0, tag 6: no room on the link: the peer "
            "takes nothing");
  ASSERT_TRUE(world.RunUntil({&queued}));
  world.StepAll();
  EXPECT_THAT(world[0].Describe(receive),
              HasSubstr("(2 others came, the first from rank 1 with tag 5)"));
  Transfer offered = SendOf(source, 0, 8);
  world[1].Start(&offered);
  EXPECT_EQ(world[1].Describe(offered),
            "send of 8192 bytes to rank 0, tag 8: no matching receive yet");
  GuardedBuffer all(8 * kSliceBytes);
  Transfer taken = ReceiveInto(all, kAnySource, 8);
  world[0].Start(&taken);
  world.Step(0);
  world.Step(1);
  EXPECT_THAT(world[1].Describe(offered), HasSubstr("1024 of 8192 bytes"));
  EXPECT_THAT(world[0].Describe(taken),
              HasSubstr("from any rank, tag 8: 0 of 8192 bytes moved from "
                        "rank 1"));
  ASSERT_TRUE(world.RunUntil({&offered, &taken}));
}

TEST(PointToPoint, UnmatchedReceiveKeepsNothingElseFromCompleting) {
  TestWorld world({});
  GuardedBuffer buffer(8), destination(8), unmatched(8);
  Transfer extra = ReceiveInto(unmatched, 0, 1);
  Transfer receive = ReceiveInto(destination, 0, 2);
  Transfer send = SendOf(buffer, 1, 2), late = SendOf(buffer, 1, 1);
  world[1].Start(&extra);
  world[1].Start(&receive);
  world[0].Start(&send);
  ASSERT_TRUE(world.RunUntil({&send, &receive}));
  EXPECT_FALSE(extra.done);
  world[0].Start(&late);
  ASSERT_TRUE(world.RunUntil({&extra}));
}

TEST(PointToPoint, FailAllFinishesTransfersInEveryState) {
  TestWorld world({.ranks = 3});
  GuardedBuffer short_source(8), source(9 * kSliceBytes), short_buffer(8);
  GuardedBuffer self_source(100'000), buffer(9 * kSliceBytes);
  auto region = world.transport(0).Register(source.data(), source.size());
  ASSERT_TRUE(region.ok()) << region.status();
  std::deque<Transfer> mine;
  mine.push_back(ReceiveInto(short_buffer, 1, 1));
  mine.push_back(ReceiveInto(short_buffer, kAnySource, 2));
  mine.push_back(SendOf(self_source, 0, 3));
  mine.push_back(ReceiveInto(buffer, 2, 4));
  mine.push_back(SendOf(source, 2, 5));
  mine.push_back(SendOf(source, 1, 6));
  mine.back().bytes = kSliceBytes + 1;
  mine.back().region = region->get();
  mine.push_back(SendOf(source, 1, 7));
  mine.push_back(SendOf(short_source, 1, 8));
  mine.push_back(SendOf(short_source, 1, 9));
  GuardedBuffer at_one(9 * kSliceBytes), at_two(9 * kSliceBytes);
  Transfer taken = ReceiveInto(at_one, 0, 6);
  Transfer sent = SendOf(at_two, 0, 4);
  world[1].Start(&taken);
  world[2].Start(&sent);
  for (size_t i = 0; i < 6; ++i) world[0].Start(&mine[i]);
  world.Step(0);  // takes rank 2's offer
  world.Step(1);  // takes the offer of tag 6
  world.Step(0);  // sends its first slice
  for (size_t i = 6; i < mine.size(); ++i) world[0].Start(&mine[i]);
  std::vector<bool> was_done;
  for (const Transfer& transfer : mine) was_done.push_back(transfer.done);
  world[0].FailAll(absl::AbortedError("the end"));
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(mine[i].done) << i;
    if (was_done[i]) continue;
    EXPECT_EQ(mine[i].status, absl::AbortedError("the end")) << i;
  }
  EXPECT_LE(std::count(was_done.begin(), was_done.end(), true), 1);
  EXPECT_FALSE(world[0].busy());
}

}  // namespace
}  // namespace trnccl
