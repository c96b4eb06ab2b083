// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Much traffic: N ranks stepped by one thread in a seeded order, by a thread
// each, asleep in between, and over the wrap of the counters.
#include <poll.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "transports/conformance/conformance.h"
#include "transports/conformance/player.h"

namespace trnccl {
namespace {

std::vector<std::unique_ptr<Player>> PlayersOf(const Subject& subject,
                                               Team& team, uint64_t messages) {
  std::vector<std::unique_ptr<Player>> players;
  for (int rank = 0; rank < team.ranks(); ++rank) {
    players.push_back(
        std::make_unique<Player>(subject, team[rank],
                                 Player::Options{.rank = rank,
                                                 .ranks = team.ranks(),
                                                 .lanes = team.lanes(),
                                                 .messages = messages}));
  }
  return players;
}

void StepInOneThread(const Subject& subject, const TeamOptions& options,
                     uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  Team team(subject, options);
  auto players = PlayersOf(subject, team, subject.messages());
  size_t done = 0;
  while (done < players.size()) {
    const size_t rank = random() % players.size();
    Player& player = *players[rank];
    if (player.done()) {
      if (subject.lossy) {
        ASSERT_TRUE(team[static_cast<int>(rank)].Progress().ok());
      }
      continue;
    }
    const std::string wrong = player.Step(random());
    ASSERT_EQ(wrong, "");
    done += player.done() ? 1 : 0;
  }
}

TEST_P(Conformance, RanksSteppedInAnyOrderByOneThread) {
  const uint64_t seed = std::random_device()();
  StepInOneThread(GetParam(), {.ranks = 2, .lanes = 1}, seed);
  StepInOneThread(GetParam(), {.ranks = 3, .lanes = 2}, seed + 1);
  StepInOneThread(GetParam(), {.ranks = 5, .lanes = 3}, seed + 2);
}

TEST_P(Conformance, CountersWrap) {
  for (const uint32_t first : {0x7ffffff0u, 0xfffffff0u, 0xffffffffu}) {
    StepInOneThread(GetParam(),
                    {.ranks = 3, .lanes = 2, .first_sequence = first}, first);
  }
}

TEST_P(Conformance, AThreadForEachRank) {
  Team team(GetParam(), {.ranks = 4, .lanes = 2});
  auto players = PlayersOf(GetParam(), team, GetParam().messages());
  std::vector<std::thread> threads;
  std::atomic<int> going = team.ranks();
  for (int rank = 0; rank < team.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      std::mt19937_64 random(rank);
      Player& player = *players[rank];
      for (int idle = 0; !player.done();) {
        const std::string wrong = player.Step(random());
        ASSERT_EQ(wrong, "");
        idle = player.moved() ? 0 : idle + 1;
        if (idle > 50) std::this_thread::yield();
      }
      --going;
      while (GetParam().lossy && going > 0)
        ASSERT_TRUE(team[rank].Progress().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Sleeps until `look` says there's something, by the rules of SetPresence().
template <typename Look>
bool SleepUntil(Transport& transport, Doorbell& doorbell, const Look& look) {
  while (!look()) {
    transport.SetPresence(Presence::kAsleep);
    if (!transport.Progress().ok()) return false;
    if (!transport.TakeArrived() && !look()) {
      std::vector<pollfd> entries = {{.fd = doorbell.fd(), .events = POLLIN}};
      for (const int fd : transport.traits().wake_fds)
        entries.push_back({.fd = fd, .events = POLLIN});
      if (poll(entries.data(), entries.size(), 30'000) < 1) return false;
      doorbell.Drain();
    }
    transport.SetPresence(Presence::kAwake);
    if (!transport.Progress().ok()) return false;
  }
  return true;
}

// One sleeps whenever there's no room, the other whenever there's no message.
TEST_P(Conformance, NoWakeIsLostInAStream) {
  const int messages = GetParam().Many(3000);
  Team team(GetParam(), {.ranks = 2, .doorbells = true});
  const LinkId out = team.With(0, 1);
  const LinkId in = team.With(1, 0);
  std::thread sender([&] {
    for (int i = 0; i < messages; ++i) {
      ASSERT_TRUE(SleepUntil(team[0], team.doorbell(0), [&] {
        return team[0].Reserve({&out, 1}, 8) != nullptr;
      }));
      ASSERT_TRUE(team[0].Send({&out, 1}, {.bytes = 8}));
    }
    ASSERT_TRUE(SleepUntil(team[0], team.doorbell(0),
                           [&] { return team[0].unsent() == 0; }));
  });
  for (int i = 0; i < messages; ++i) {
    ASSERT_TRUE(SleepUntil(team[1], team.doorbell(1), [&] {
      return team[1].Peek(in, nullptr) != nullptr;
    }));
    team[1].Release(in);
  }
  sender.join();
}

TEST_P(Conformance, NoWakeIsLostInPingPong) {
  const int rounds = GetParam().Many(3000);
  Team team(GetParam(), {.ranks = 2, .doorbells = true});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Transport& transport = team[rank];
      const LinkId link = team.With(rank, 1 - rank);
      for (int i = 0; i < rounds; ++i) {
        if (i % 2 == rank) {
          ASSERT_NE(transport.Reserve({&link, 1}, 8), nullptr);
          ASSERT_TRUE(transport.Send({&link, 1}, {.bytes = 8}));
          ASSERT_TRUE(SleepUntil(transport, team.doorbell(rank), [&] {
            return transport.Pending(link) == 0 && transport.unsent() == 0;
          }));
        } else {
          ASSERT_TRUE(SleepUntil(transport, team.doorbell(rank), [&] {
            return transport.Peek(link, nullptr) != nullptr;
          }));
          transport.Release(link);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace trnccl
