// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/pair.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace trnccl::cli {
namespace {

constexpr int64_t kPatienceMs = 60'000;

void ExpectNoChildLeft() {
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(RunPair, GivesWhatEachReturned) {
  const auto both = RunPair<int>(
      [](Seat& seat) -> absl::StatusOr<int> { return 40 + seat.rank(); },
      Deadline::After(kPatienceMs));
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ((*both)[0], 40);
  EXPECT_EQ((*both)[1], 41);
  ExpectNoChildLeft();
}

TEST(RunPair, LetsThemSwapTextsAgainAndAgain) {
  const auto both = RunPair<int>(
      [](Seat& seat) -> absl::StatusOr<int> {
        for (int i = 0; i < 100; ++i) {
          auto theirs = seat.Swap(absl::StrCat(seat.rank(), " in turn ", i));
          if (!theirs.ok()) return theirs.status();
          if (*theirs != absl::StrCat(seat.peer(), " in turn ", i)) return i;
        }
        return -1;
      },
      Deadline::After(kPatienceMs));
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ((*both)[0], -1);
  EXPECT_EQ((*both)[1], -1);
}

TEST(RunPair, NamesTheOneThatDiedAndLeavesNobody) {
  const auto both = RunPair<int>(
      [](Seat& seat) -> absl::StatusOr<int> {
        if (seat.rank() == 1) raise(SIGKILL);
        RETURN_IF_ERROR(seat.Meet());
        return 0;
      },
      Deadline::After(kPatienceMs));
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.status().message(), "process 1 died of signal 9");
  ExpectNoChildLeft();
}

TEST(RunPair, PassesOnTheErrorOfOne) {
  const auto both = RunPair<int>(
      [](Seat& seat) -> absl::StatusOr<int> {
        if (seat.rank() == 0) return absl::NotFoundError("nothing here");
        RETURN_IF_ERROR(seat.Meet());
        return 0;
      },
      Deadline::After(kPatienceMs));
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.status().message(), "process 0: nothing here");
  ExpectNoChildLeft();
}

TEST(RunPair, EndsThoseThatTakeTooLong) {
  const auto both = RunPair<int>(
      [](Seat&) -> absl::StatusOr<int> {
        while (true) pause();
      },
      Deadline::After(50));
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.status().code(), absl::StatusCode::kDeadlineExceeded);
  ExpectNoChildLeft();
}

}  // namespace
}  // namespace trnccl::cli
