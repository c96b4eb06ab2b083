// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Single messages: the guarantee of one a link, and how each kind travels.
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "transports/conformance/conformance.h"
#include "transports/conformance/player.h"

namespace trnccl {
namespace {

// Sends until the transport takes no more, or plenty.
void FillUp(Transport& transport, LinkId link, size_t bytes) {
  for (int i = 0; i < 1000; ++i) {
    if (transport.Reserve({&link, 1}, bytes) == nullptr) return;
    ASSERT_TRUE(transport.Send({&link, 1}, {.bytes = bytes}));
  }
}

struct Stretch {
  int rank = 0;
  int lane = 0;
};

// Takes all that rank 0 has sent there.
void Drain(Team& team, const Stretch& stretch) {
  const LinkId in = team.With(stretch.rank, 0, stretch.lane);
  const LinkId out = team.With(0, stretch.rank, stretch.lane);
  Transport& transport = team[stretch.rank];
  do {
    while (transport.Peek(in, nullptr) != nullptr) transport.Release(in);
    ASSERT_TRUE(transport.Progress().ok());
    ASSERT_TRUE(team[0].Progress().ok());
  } while (team[0].Pending(out) > 0 || transport.Peek(in, nullptr) != nullptr);
}

TEST_P(Conformance, TraitsAreAlikeAndNameAnAddress) {
  Team team(GetParam(), {.ranks = 3, .lanes = 2});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(team[rank].traits().slice_bytes, team[0].traits().slice_bytes);
    EXPECT_EQ(team[rank].traits().inline_bytes, team[0].traits().inline_bytes);
    EXPECT_EQ(team[rank].traits().by_reference, team[0].traits().by_reference);
    EXPECT_FALSE(team[rank].traits().address.empty());
    EXPECT_FALSE(team[rank].traits().name.empty());
  }
}

TEST_P(Conformance, AnEmptyLinkTakesAMessageWhateverOthersHold) {
  constexpr int kRanks = 4;
  constexpr int kLanes = 3;
  for (const size_t divisor : {1, 3, 1000}) {
    for (int last = 1; last < kRanks; ++last) {
      Team team(GetParam(), {.ranks = kRanks, .lanes = kLanes});
      const size_t slice = team[0].traits().slice_bytes;
      for (int peer = 1; peer < kRanks; ++peer) {
        for (int lane = 0; lane < kLanes; ++lane) {
          if (peer == last && lane == 1) continue;
          FillUp(team[0], team.With(0, peer, lane), slice / divisor);
        }
      }
      const LinkId link = team.With(0, last, 1);
      ASSERT_NE(team[0].Reserve({&link, 1}, slice), nullptr);
    }
  }
}

// Random holds and releases, with the promise checked after each.
TEST_P(Conformance, EmptyLinksAlwaysTakeAMessageTogether) {
  constexpr int kRanks = 4;
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  Team team(GetParam(), {.ranks = kRanks, .lanes = 2});
  const size_t slice = team[0].traits().slice_bytes;
  std::vector<LinkId> all;
  for (int peer = 1; peer < kRanks; ++peer) {
    for (int lane = 0; lane < 2; ++lane) {
      all.push_back(team.With(0, peer, lane));
    }
  }
  std::map<uint32_t, int> held;  // messages of each link of rank 0
  for (int round = 0; round < GetParam().Many(3000); ++round) {
    const int peer = 1 + static_cast<int>(random() % (kRanks - 1));
    const int lane = static_cast<int>(random() % 2);
    if (random() % 3 == 0) {
      const LinkId theirs = team.With(peer, 0, lane);
      if (team[peer].Peek(theirs, nullptr) != nullptr) {
        team[peer].Release(theirs);
        --held[team.With(0, peer, lane).index];
      }
    } else {
      std::vector<LinkId> links = {team.With(0, peer, lane)};
      if (random() % 2 == 0) links = all;
      const size_t bytes = random() % 2 == 0 ? slice : random() % (slice + 1);
      if (team[0].Reserve(links, bytes) != nullptr) {
        ASSERT_TRUE(team[0].Send(links, {.bytes = bytes}));
        for (const LinkId link : links) ++held[link.index];
      }
    }
    ASSERT_TRUE(team[peer].Progress().ok());
    ASSERT_TRUE(team[0].Progress().ok());
    std::vector<LinkId> empty;
    for (const LinkId link : all) {
      if (held[link.index] == 0) empty.push_back(link);
    }
    if (empty.empty()) continue;
    // Its news may be on their way still.
    ASSERT_TRUE(ProgressUntil(
        team.all(), [&] { return team[0].Reserve(empty, slice) != nullptr; }))
        << "round " << round;
  }
}

TEST_P(Conformance, EverySizeArrivesWithItsEnvelope) {
  Team team(GetParam(), {.ranks = 2});
  const Traits& traits = team[0].traits();
  const Stream stream = {.from = 0, .to = 1};
  const LinkId out = team.With(0, 1);
  const LinkId in = team.With(1, 0);
  for (uint64_t number = 0; number < 200; ++number) {
    const size_t bytes = stream.Bytes(number, traits);
    std::byte* slice = team.Reserve(0, {&out, 1}, bytes);
    ASSERT_NE(slice, nullptr);
    stream.Fill(number, slice, bytes);
    ASSERT_EQ(team[1].Peek(in, nullptr), nullptr);
    ASSERT_TRUE(team[0].Send(
        {&out, 1}, {.envelope = stream.EnvelopeOf(number), .bytes = bytes}));
    if (!traits.delivers) {
      EXPECT_EQ(team[0].Pending(out), 1u);
    }
    const Incoming* message = team.Await(1, in);
    ASSERT_NE(message, nullptr);
    ASSERT_EQ(stream.Check(number, *message, traits), "");
    if (!traits.delivers) {
      EXPECT_EQ(team[0].Pending(out), 1u);
    }
    team[1].Release(in);
    EXPECT_TRUE(team.AwaitDelivery(0, out));
    ASSERT_EQ(team[1].Peek(in, nullptr), nullptr);
  }
}

TEST_P(Conformance, LessThanReservedMayBeSent) {
  Team team(GetParam(), {.ranks = 2});
  const LinkId out = team.With(0, 1);
  const LinkId in = team.With(1, 0);
  const size_t slice = team[0].traits().slice_bytes;
  // The first is replaced by the second.
  ASSERT_NE(team[0].Reserve({&out, 1}, slice), nullptr);
  std::byte* data = team[0].Reserve({&out, 1}, slice);
  ASSERT_NE(data, nullptr);
  data[0] = std::byte{7};
  ASSERT_TRUE(team[0].Send({&out, 1}, {.bytes = 1}));
  const Incoming* message = team.Await(1, in);
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(message->bytes, 1u);
  EXPECT_EQ(message->data[0], std::byte{7});
}

TEST_P(Conformance, APeekedMessageStaysWhateverHappens) {
  Team team(GetParam(), {.ranks = 3, .lanes = 2});
  const Traits& traits = team[0].traits();
  for (const size_t bytes : {size_t{8}, traits.slice_bytes / 2}) {
    const Stream stream = {.from = 0, .to = 1};
    const LinkId out = team.With(0, 1);
    const LinkId in = team.With(1, 0);
    std::byte* slice = team[0].Reserve({&out, 1}, bytes);
    ASSERT_NE(slice, nullptr);
    stream.Fill(bytes, slice, bytes);
    ASSERT_TRUE(team[0].Send({&out, 1}, {.bytes = bytes}));
    const Incoming* message = team.Await(1, in);
    ASSERT_NE(message, nullptr);
    const std::vector<std::byte> before(message->data, message->data + bytes);
    // The sender goes on, there and elsewhere, until nothing more is taken.
    FillUp(team[0], out, traits.slice_bytes);
    FillUp(team[0], team.With(0, 2), traits.slice_bytes);
    FillUp(team[0], team.With(0, 1, 1), traits.slice_bytes);
    EXPECT_TRUE(team[1].Progress().ok());
    ASSERT_EQ(team[1].Peek(in, nullptr), message);
    EXPECT_EQ(std::memcmp(before.data(), message->data, bytes), 0);
    Drain(team, {.rank = 1, .lane = 0});
    Drain(team, {.rank = 1, .lane = 1});
    Drain(team, {.rank = 2, .lane = 0});
  }
}

TEST_P(Conformance, OnePayloadReachesSeveralPeers) {
  constexpr int kRanks = 4;
  Team team(GetParam(), {.ranks = kRanks, .lanes = 2});
  const Traits& traits = team[0].traits();
  const Stream stream = {.from = 0, .to = 0};
  const std::vector<LinkId> links = {team.With(0, 1, 0), team.With(0, 2, 1),
                                     team.With(0, 3, 0)};
  for (uint64_t number = 0; number < 100; ++number) {
    const size_t bytes = stream.Bytes(number, traits);
    std::byte* slice = team.Reserve(0, links, bytes);
    ASSERT_NE(slice, nullptr);
    stream.Fill(number, slice, bytes);
    ASSERT_TRUE(team[0].Send(
        links, {.envelope = stream.EnvelopeOf(number), .bytes = bytes}));
    for (int peer = 1; peer < kRanks; ++peer) {
      const LinkId in = team.With(peer, 0, peer == 2 ? 1 : 0);
      const Incoming* message = team.Await(peer, in);
      ASSERT_NE(message, nullptr);
      ASSERT_EQ(stream.Check(number, *message, traits), "");
      team[peer].Release(in);
    }
  }
}

TEST_P(Conformance, RegisteredMemoryIsSentFromWhereItLies) {
  Team team(GetParam(), {.ranks = 3});
  const Traits& traits = team[0].traits();
  const size_t bytes = traits.slice_bytes;
  SubjectMemory memory(GetParam(), 3 * bytes);
  std::vector<std::byte> heap(3 * bytes);
  for (std::byte* base : {memory.data(), heap.data()}) {
    auto region = team[0].Register(base, 3 * bytes);
    ASSERT_TRUE(region.ok()) << region.status();
    if (base == memory.data()) {
      EXPECT_EQ((*region)->by_reference(), traits.by_reference);
    }
    const Stream stream = {.from = 0, .to = 1};
    const std::vector<LinkId> links = {team.With(0, 1), team.With(0, 2)};
    for (uint64_t number = 0; number < 100; ++number) {
      const size_t length = stream.Bytes(number, traits);
      const size_t offset = 3 * bytes - length - number % 2 * (bytes / 2);
      stream.Fill(number, base + offset, length);
      ASSERT_TRUE(team[0].Send(links, {.envelope = stream.EnvelopeOf(number),
                                       .bytes = length,
                                       .region = region->get(),
                                       .offset = offset}));
      for (int peer = 1; peer < 3; ++peer) {
        const LinkId out = team.With(0, peer);
        const Incoming* message = team.Await(peer, team.With(peer, 0));
        ASSERT_NE(message, nullptr) << team[peer].Progress();
        ASSERT_EQ(stream.Check(number, *message, traits), "");
        if (!traits.delivers) {
          EXPECT_EQ(team[0].Pending(out), 1u);
        }
        team[peer].Release(team.With(peer, 0));
        EXPECT_TRUE(team.AwaitDelivery(0, out));
      }
    }
  }
}

TEST_P(Conformance, SendByReferenceSaysWhenALinkIsFull) {
  Team team(GetParam(), {.ranks = 2});
  const size_t bytes = team[0].traits().slice_bytes;
  SubjectMemory memory(GetParam(), bytes);
  auto region = team[0].Register(memory.data(), bytes);
  ASSERT_TRUE(region.ok()) << region.status();
  const LinkId out = team.With(0, 1);
  size_t sent = 0;
  while (sent < 1000 &&
         team[0].Send({&out, 1}, {.bytes = bytes, .region = region->get()})) {
    ++sent;
  }
  EXPECT_GE(sent, 1u);
  EXPECT_LT(sent, 1000u);
  EXPECT_LE(team[0].Pending(out), sent);
  if (!team[0].traits().delivers) {
    EXPECT_EQ(team[0].Pending(out), sent);
  }
}

}  // namespace
}  // namespace trnccl
