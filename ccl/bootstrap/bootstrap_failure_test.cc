// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What goes wrong while ranks meet or exchange: who hears of it, and what.
#include <atomic>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "ccl/bootstrap/acceptor.h"
#include "ccl/bootstrap/bootstrap.h"
#include "ccl/bootstrap/hello.h"
#include "ccl/bootstrap/wire.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

const InterfaceChoice kLoopback = {"lo", SocketFamily::kIpv4};

BootstrapOptions Options(int timeout_ms = 60'000) {
  BootstrapOptions options;
  options.patience.deadline = Deadline::After(timeout_ms);
  options.host = "here";
  options.agreement = "version=1\nTRNCCL_LANES=2\n";
  return options;
}

UniqueId NewId() {
  absl::StatusOr<UniqueId> id = CreateUniqueId(kLoopback);
  EXPECT_TRUE(id.ok()) << id.status();
  return *std::move(id);
}

// Runs `body` for every process of a job, a thread each; returns their errors.
std::vector<std::string> Errors(
    int processes, const std::function<absl::Status(int process)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(processes));
  std::vector<std::thread> threads;
  for (int process = 0; process < processes; ++process) {
    threads.emplace_back([&, process] {
      const absl::Status status = body(process);
      errors[static_cast<size_t>(process)] = status.ToString();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<std::string> ErrorsOfJoining(
    const std::vector<Membership>& members,
    const std::function<BootstrapOptions(int process)>& options) {
  const UniqueId id = NewId();
  return Errors(static_cast<int>(members.size()), [&](int process) {
    return Bootstrap::Connect(id, members[static_cast<size_t>(process)],
                              options(process))
        .status();
  });
}

// Seven ranks that have met; `body` is theirs.
std::vector<std::string> ErrorsOfSeven(
    const std::function<absl::Status(Bootstrap& bootstrap,
                                     std::atomic<bool>& abort)>& body) {
  const UniqueId id = NewId();
  return Errors(7, [&](int rank) -> absl::Status {
    std::atomic<bool> abort = false;
    BootstrapOptions options = Options();
    options.patience.abort = &abort;
    auto bootstrap = Bootstrap::Connect(id, {rank, 7}, options);
    if (!bootstrap.ok()) return bootstrap.status();
    return body(**bootstrap, abort);
  });
}

TEST(Bootstrap, MissingRanksAreListedOnEveryRank) {
  const auto errors = ErrorsOfJoining({{0, 6}, {4, 6}, {1, 6}, {3, 6}},
                                      [](int) { return Options(2'000); });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("DEADLINE_EXCEEDED"),
                                 HasSubstr("4 of 6 ranks came"),
                                 HasSubstr("missing: ranks 2, 5"))));
}

TEST(Bootstrap, ImpatienceOfOneRankStillTellsAllWhoIsMissing) {
  const auto errors = ErrorsOfJoining({{0, 3}, {1, 3}}, [](int process) {
    return Options(process == 0 ? 60'000 : 2'000);
  });
  EXPECT_THAT(errors, Each(HasSubstr("missing: rank 2")));
}

TEST(Bootstrap, DuplicateRankIsNamedOnEveryRank) {
  const auto errors = ErrorsOfJoining({{0, 5}, {1, 5}, {3, 5}, {3, 5}, {4, 5}},
                                      [](int) { return Options(); });
  EXPECT_THAT(errors, Each(HasSubstr("rank 3 came twice")));
}

TEST(Bootstrap, RankOutOfRangeIsNamedOnEveryRank) {
  const auto errors =
      ErrorsOfJoining({{0, 3}, {1, 3}, {3, 3}}, [](int) { return Options(); });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("rank 3"), HasSubstr("out of range"))));
}

TEST(Bootstrap, DifferentNumbersOfRanksAreNamedOnEveryRank) {
  const auto errors = ErrorsOfJoining({{0, 4}, {1, 4}, {3, 4}, {2, 3}},
                                      [](int) { return Options(); });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("number of ranks"), HasSubstr("has 4"),
                         HasSubstr("rank 2"), HasSubstr("has 3"))));
}

TEST(Bootstrap, DifferentVersionOrSettingIsNamedOnEveryRankWithBothValues) {
  for (const char* agreement :
       {"version=2\nTRNCCL_LANES=2\n", "version=1\nTRNCCL_LANES=4\n"}) {
    const auto errors = ErrorsOfJoining(
        {{0, 5}, {1, 5}, {2, 5}, {3, 5}, {4, 5}}, [&](int process) {
          BootstrapOptions options = Options();
          if (process == 2) options.agreement = agreement;
          return options;
        });
    const bool lanes = agreement[8] == '1';
    EXPECT_THAT(errors,
                Each(AllOf(HasSubstr("rank 2 (on here) has "),
                           HasSubstr(lanes ? "LANES=2" : "version=1"),
                           HasSubstr(lanes ? "LANES=4" : "version=2"))));
  }
}

TEST(Bootstrap, StrangersAndGarbageDoNotDisturbTheJob) {
  const UniqueId id = NewId();
  std::atomic<bool> stop = false;
  std::thread stranger([&] {
    UniqueId other = id;
    other.secret[0] ^= 1;
    std::vector<Socket> silent;
    while (!stop) {
      const Patience patience{Deadline::After(200), &stop};
      auto socket = Connect(id.addresses[0], patience);
      if (!socket.ok()) break;
      SendAll(*socket, std::string(100, '\xee'), patience).IgnoreError();
      if (silent.size() < 20) silent.push_back(*std::move(socket));
      Visit(id.addresses, other.secret, patience).status().IgnoreError();
    }
  });
  const auto errors = Errors(8, [&](int rank) -> absl::Status {
    auto bootstrap = Bootstrap::Connect(id, {rank, 8}, Options());
    if (!bootstrap.ok()) return bootstrap.status();
    return (*bootstrap)->Barrier(Deadline::After(60'000));
  });
  stop = true;
  stranger.join();
  EXPECT_THAT(errors, Each("OK"));
}

// More of them than were ever let in at once, all there before any rank.
TEST(Bootstrap, AFloodOfStrangersKeepsNoRankWaitingAndIsSentAway) {
  const UniqueId id = NewId();
  const Patience patience{Deadline::After(60'000)};
  std::vector<Socket> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(Connect(id.addresses[0], patience).value());
    // Says nothing, or begins well and goes no further.
    const std::string_view said =
        std::string_view("TRNCCL\x01\n").substr(0, i % 9);
    EXPECT_TRUE(SendAll(strangers.back(), said, patience).ok());
  }
  std::atomic<bool> met = false;
  std::thread dribbler([&] {
    for (size_t i = 0; !met; ++i)
      SendAll(strangers[i % strangers.size()], "x", patience).IgnoreError();
  });
  const auto errors = Errors(8, [&](int rank) -> absl::Status {
    auto bootstrap = Bootstrap::Connect(id, {rank, 8}, Options());
    if (!bootstrap.ok()) return bootstrap.status();
    return (*bootstrap)->Barrier(Deadline::After(60'000));
  });
  met = true;
  dribbler.join();
  EXPECT_THAT(errors, Each("OK"));
  for (const Socket& stranger : strangers) {
    char byte = 0;
    absl::Status end;
    // A challenge may have come before.
    while (end.ok()) end = ReceiveAll(stranger, &byte, 1, patience);
    EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  }
}

TEST(Bootstrap, NoServerIsAnErrorWithTheAddressesTried) {
  const UniqueId id = NewId();
  TakeListeners(id).clear();
  const absl::Status status =
      Bootstrap::Connect(id, {1, 2}, Options()).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank 1 of 2"), HasSubstr("no server at"),
                    HasSubstr(id.addresses[0].ToString())));
}

TEST(Bootstrap, RootThatNeverComesIsAnErrorAtTheDeadline) {
  const UniqueId id = NewId();
  const std::vector<Socket> listeners = TakeListeners(id);
  const absl::Status status =
      Bootstrap::Connect(id, {1, 2}, Options(100)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(id.addresses[0].ToString()));
}

TEST(Bootstrap, AbortEndsJoiningOnEveryRank) {
  std::atomic<bool> abort = false;
  std::thread aborter([&] { abort = true; });
  const auto errors = ErrorsOfJoining({{0, 3}, {1, 3}}, [&](int process) {
    BootstrapOptions options = Options();
    if (process == 1) options.patience.abort = &abort;
    options.grace_ms = 100;
    if (process == 0) options.patience.deadline = Deadline::After(1'000);
    return options;
  });
  aborter.join();
  EXPECT_THAT(errors[1], HasSubstr("ABORTED"));
  EXPECT_THAT(errors[0], Not(HasSubstr("OK")));
}

TEST(Bootstrap, RankThatEndsIsNamedOnEveryOtherRank) {
  const auto errors = ErrorsOfSeven(
      [](Bootstrap& bootstrap, std::atomic<bool>&) -> absl::Status {
        if (bootstrap.membership().rank == 5) {
          return absl::UnavailableError("lost rank 5");
        }
        return bootstrap.Barrier(Deadline::After(60'000));
      });
  EXPECT_THAT(errors, Each(HasSubstr("lost rank 5")));
}

// Of four ranks, the second of which goes away once it has its place, perhaps
// after saying that it has linked. All have come by then, so nobody has to be
// waited for.
enum class LastWord { kNone, kLinked };

std::vector<std::string> ErrorsWithoutTheSecond(LastWord last_word) {
  const UniqueId id = NewId();
  const UniqueId nowhere = NewId();
  TakeListeners(nowhere).clear();
  std::atomic<bool> has_ended = false;
  return Errors(4, [&](int rank) -> absl::Status {
    BootstrapOptions options = Options();
    options.grace_ms = 3'600'000;
    if (rank == 1) {
      auto root = Visit(id.addresses, id.secret, options.patience);
      const auto say = [&](const Hello& hello) {
        SendFrame(*root, SerializeHello(hello), options.patience).IgnoreError();
      };
      say(JoinHello{.member = {rank, 4},
                    .remaining_ms = 60'000,
                    .host = "second",
                    .agreement = options.agreement,
                    .addresses = nowhere.addresses});
      const auto reply = ReceiveFrame(*root, 2 << 10, options.patience);
      if (last_word == LastWord::kLinked) say(LinkHello{1, rank, "second"});
      has_ended = true;
      return reply.status();
    }
    while (rank != 0 && !has_ended) std::this_thread::yield();
    return Bootstrap::Connect(id, {rank, 4}, options).status();
  });
}

TEST(Bootstrap, RankThatEndsBeforeItsChildrenReachItHoldsUpNobody) {
  const auto errors = ErrorsWithoutTheSecond(LastWord::kLinked);
  EXPECT_EQ(errors[1], "OK");
  for (const int rank : {0, 2, 3})
    EXPECT_THAT(errors[static_cast<size_t>(rank)],
                HasSubstr("cannot reach rank 1"));
}

TEST(Bootstrap, RankThatEndsBeforeItReachesItsParentIsNamedAtOnce) {
  const auto errors = ErrorsWithoutTheSecond(LastWord::kNone);
  EXPECT_EQ(errors[1], "OK");
  EXPECT_THAT(errors[0], HasSubstr("origin: rank 1 (host second)"));
  // Its child may find out by itself.
  for (const size_t rank : {2u, 3u})
    EXPECT_THAT(errors[rank], HasSubstr("rank 1"));
}

// It had its place, and the last rank never comes: those who wait for that one
// needn't.
TEST(Bootstrap, RankThatEndsWhileOthersAreAwaitedIsNamedAtOnce) {
  const UniqueId id = NewId();
  std::atomic<int> told = 0;
  const auto errors = Errors(4, [&](int rank) -> absl::Status {
    BootstrapOptions options = Options();
    options.grace_ms = 3'600'000;
    if (rank == 3) {
      while (told.load() < 2) std::this_thread::yield();
      return absl::OkStatus();
    }
    if (rank == 1) {
      auto root = Visit(id.addresses, id.secret, options.patience);
      RETURN_IF_ERROR(
          SendFrame(*root,
                    SerializeHello(JoinHello{.member = {rank, 4},
                                             .remaining_ms = 60'000,
                                             .host = "second",
                                             .agreement = options.agreement,
                                             .addresses = id.addresses}),
                    options.patience));
      const auto reply = ReceiveFrame(*root, 2 << 10, options.patience);
      RETURN_IF_ERROR(reply.status());
      // Rank 2 may have come first.
      const int index = ParseReply(*reply)->index;
      const std::string own = SerializeHello(LinkHello{index, rank, "second"});
      auto parent = Visit(id.addresses, id.secret, options.patience);
      RETURN_IF_ERROR(SendFrame(*parent, own, options.patience));
      return SendFrame(*root, own, options.patience);
    }
    const absl::Status status =
        Bootstrap::Connect(id, {rank, 4}, options).status();
    ++told;
    return status;
  });
  EXPECT_EQ(errors[1], "OK");
  for (const size_t rank : {0u, 2u})
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("lost rank 1 (host second)"),
                                    HasSubstr("origin: rank 1 (host second)")));
}

TEST(Bootstrap, RankThatNeverCallsIsNamedOnEveryOtherRank) {
  std::atomic<int> gone = 0;
  const auto errors = ErrorsOfSeven(
      [&gone](Bootstrap& bootstrap, std::atomic<bool>&) -> absl::Status {
        if (bootstrap.membership().rank != 5) {
          const absl::Status status = bootstrap.Barrier(Deadline::After(500));
          ++gone;
          return status;
        }
        while (gone < 6) std::this_thread::yield();
        return absl::DeadlineExceededError("waiting for rank 5");
      });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("DEADLINE_EXCEEDED"),
                                 HasSubstr("waiting for rank 5"))));
}

TEST(Bootstrap, AbortOfOneRankIsNamedOnEveryRank) {
  const auto errors = ErrorsOfSeven(
      [](Bootstrap& bootstrap, std::atomic<bool>& abort) -> absl::Status {
        abort = bootstrap.membership().rank == 4;
        return bootstrap.Barrier(Deadline::After(60'000));
      });
  EXPECT_THAT(errors, Each(HasSubstr("rank 4 was aborted")));
}

TEST(Bootstrap, DifferentCallsAreAnErrorOnEveryRank) {
  const auto errors = ErrorsOfSeven(
      [](Bootstrap& bootstrap, std::atomic<bool>&) -> absl::Status {
        if (bootstrap.membership().rank == 3) {
          return bootstrap.AllGather("x", Deadline::After(60'000)).status();
        }
        return bootstrap.Barrier(Deadline::After(60'000));
      });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("different calls"), HasSubstr("barrier"),
                         HasSubstr("all-gather"))));
}

TEST(Bootstrap, ErrorIsFinal) {
  const auto errors = ErrorsOfSeven(
      [](Bootstrap& bootstrap, std::atomic<bool>& abort) -> absl::Status {
        abort = bootstrap.membership().rank == 4;
        const absl::Status first = bootstrap.Barrier(Deadline::After(60'000));
        EXPECT_FALSE(bootstrap.parent().socket.is_open());
        const absl::Status second = bootstrap.Barrier(Deadline::After(60'000));
        EXPECT_EQ(first, second);
        return second;
      });
  EXPECT_THAT(errors, Each(HasSubstr("rank 4 was aborted")));
}

}  // namespace
}  // namespace trnccl
