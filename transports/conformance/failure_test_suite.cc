// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Ranks that are processes, that die, leave, or write what can't be.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transports/conformance/conformance.h"
#include "transports/conformance/player.h"

namespace trnccl {
namespace {

constexpr int kRanks = 3;

// Where forked ranks put their addresses.
struct Board {
  std::atomic<int> posted;
  std::array<std::array<char, 2000>, kRanks> addresses;
};

// One rank's process: its body gives an error text, "" for none.
using Body = std::function<std::string(Transport&, int rank)>;

std::string RunRank(const Subject& subject, Board& board, int rank,
                    const Body& body) {
  auto transport = subject.make({});
  if (!transport.ok()) return transport.status().ToString();
  const std::string own = (*transport)->traits().address;
  std::strncpy(board.addresses[rank].data(), own.c_str(),
               board.addresses[rank].size() - 1);
  board.posted.fetch_add(1);
  while (board.posted.load() < kRanks) sched_yield();
  std::vector<std::string> addresses;
  for (const auto& address : board.addresses) {
    addresses.emplace_back(address.data());
  }
  const absl::Status status =
      (*transport)->Connect(OptionsOf(addresses, rank, /*lanes=*/2));
  return status.ok() ? body(**transport, rank) : status.ToString();
}

std::vector<pid_t> ForkRanks(const Subject& subject, Board& board,
                             const Body& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      const std::string wrong = RunRank(subject, board, rank, body);
      if (!wrong.empty()) std::cerr << "rank " << rank << ": " << wrong << "\n";
      _exit(wrong.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  return children;
}

class Boards {
 public:
  Boards()
      : board_(static_cast<Board*>(mmap(nullptr, sizeof(Board),
                                        PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Boards() { munmap(board_, sizeof(Board)); }
  Board& operator*() { return *board_; }

 private:
  Board* board_;
};

TEST_P(Conformance, AProcessForEachRank) {
  if (!GetParam().processes) GTEST_SKIP() << "ranks are no processes";
  Boards board;
  const auto children = ForkRanks(
      GetParam(), *board, [&](Transport& transport, int rank) -> std::string {
        Player player(GetParam(), transport,
                      {.rank = rank,
                       .ranks = kRanks,
                       .lanes = 2,
                       .messages = GetParam().messages()});
        std::mt19937_64 random(rank);
        for (int idle = 0; !player.done();) {
          const std::string wrong = player.Step(random());
          if (!wrong.empty()) return wrong;
          idle = player.moved() ? 0 : idle + 1;
          if (idle > 50) sched_yield();
        }
        (*board).posted.fetch_add(1);
        while (GetParam().lossy && (*board).posted.load() < 2 * kRanks)
          if (!transport.Progress().ok()) return "an error at the end";
        return "";
      });
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST_P(Conformance, AKilledRankIsNamedByAllOthers) {
  if (!GetParam().processes) GTEST_SKIP() << "ranks are no processes";
  if (GetParam().lazy) GTEST_SKIP() << "deaths are seen by ccl/health";
  Boards board;
  const auto children = ForkRanks(
      GetParam(), *board, [](Transport& transport, int rank) -> std::string {
        if (rank == 1) raise(SIGKILL);
        absl::Status status;
        while (status.ok()) status = transport.Progress();
        const bool named =
            status.code() == absl::StatusCode::kUnavailable &&
            status.ToString().find("rank 1 ") != std::string::npos;
        if (!named) return status.ToString();
        if (transport.Progress() != status) return "the error didn't stay";
        for (const int fd : transport.traits().wake_fds) {
          pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0};
          if (poll(&entry, 1, 0) == 1) return "";
        }
        return "no descriptor told";
      });
  for (int rank = 0; rank < kRanks; ++rank) {
    int status = 0;
    ASSERT_EQ(waitpid(children[rank], &status, 0), children[rank]);
    EXPECT_EQ(status, rank == 1 ? SIGKILL : 0);
  }
}

// Waits until a peer's end shows, then looks for an error once more.
std::string ExpectNoErrorAtEnd(Transport& transport) {
  std::vector<pollfd> deaths;
  for (const int fd : transport.traits().wake_fds) {
    deaths.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  }
  if (poll(deaths.data(), deaths.size(), 30'000) != 1) return "nobody left";
  transport.SetPresence(Presence::kAwake);
  const absl::Status status = transport.Progress();
  return status.ok() ? "" : status.ToString();
}

TEST_P(Conformance, ARankThatLeftInOrderIsNoError) {
  if (!GetParam().processes) GTEST_SKIP() << "ranks are no processes";
  if (GetParam().lazy) GTEST_SKIP() << "deaths are seen by ccl/health";
  Boards board;
  const auto children = ForkRanks(
      GetParam(), *board, [&](Transport& transport, int rank) -> std::string {
        if (rank == 1) return "";
        const std::string wrong = ExpectNoErrorAtEnd(transport);
        // The two others leave together.
        (*board).posted.fetch_add(1);
        while ((*board).posted.load() < 2 * kRanks - 1) sched_yield();
        return wrong;
      });
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST_P(Conformance, WhatALeavingRankSentCanStillBeRead) {
  Team team(GetParam(), {.ranks = 2});
  const Traits& traits = team[0].traits();
  const Stream stream = {.from = 0, .to = 1};
  const size_t bytes = traits.slice_bytes;
  const LinkId out = team.With(0, 1);
  std::byte* slice = team[0].Reserve({&out, 1}, bytes);
  ASSERT_NE(slice, nullptr);
  stream.Fill(1, slice, bytes);
  ASSERT_TRUE(team[0].Send({&out, 1}, {.bytes = bytes}));
  const LinkId in = team.With(1, 0);
  // What's longer than the network takes at once needs its sender.
  if (traits.delivers) {
    ASSERT_NE(team.Await(1, in), nullptr);
  }
  team.Destroy(0);
  EXPECT_TRUE(team[1].Progress().ok());
  const Incoming* message = team.Await(1, in);
  ASSERT_NE(message, nullptr);
  ASSERT_EQ(message->bytes, bytes);
  std::vector<std::byte> expected(bytes);
  stream.Fill(1, expected.data(), bytes);
  EXPECT_EQ(std::memcmp(message->data, expected.data(), bytes), 0);
  team[1].Release(in);
  EXPECT_TRUE(team[1].Progress().ok());
}

TEST_P(Conformance, WhatCannotBeIsAnErrorAndNoCrash) {
  for (const auto& corrupt : GetParam().corruptions) {
    Team team(GetParam(), {.ranks = 3});
    const LinkId out = team.With(0, 1);
    ASSERT_NE(team[0].Reserve({&out, 1}, 8), nullptr);
    ASSERT_TRUE(team[0].Send({&out, 1}, {.bytes = 8}));
    corrupt(team[0], out);
    // One of the two sees it, according to what was broken.
    const LinkId in = team.With(1, 0);
    EXPECT_TRUE(team[1].Progress().ok());
    const bool delivered = team[1].Peek(in, nullptr) != nullptr;
    static_cast<void>(team[0].Pending(out));
    absl::Status status = team[1].Progress();
    if (status.ok()) status = team[0].Progress();
    if (status.ok() && team[0].traits().delivers) {
      EXPECT_TRUE(ProgressUntil(team.all(), [&] {
        status = team[1].Progress();
        return !status.ok();
      }));
    }
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.ToString().find("rank "), std::string::npos) << status;
    EXPECT_TRUE(delivered || team[1].Peek(in, nullptr) == nullptr);
  }
}

}  // namespace
}  // namespace trnccl
