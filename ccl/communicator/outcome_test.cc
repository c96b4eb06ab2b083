// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/communicator/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace trnccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Good(size_t slice_bytes) {
  return OutcomeText({.slice_bytes = slice_bytes});
}

TEST(Outcome, TextIsTakenBack) {
  for (const absl::Status& status :
       {absl::OkStatus(), absl::UnavailableError("no way to rank 3, alas")}) {
    const Outcome outcome =
        ParseOutcome(OutcomeText({.status = status, .slice_bytes = 4096}));
    EXPECT_EQ(outcome.status, status);
    EXPECT_EQ(outcome.slice_bytes, 4096u);
  }
}

const Topology kTopology = {.hosts = {{.hostname = "a", .pid = 7},
                                      {.hostname = "b", .pid = 8},
                                      {.hostname = "c", .pid = 9}}};

TEST(Outcome, NonsenseIsNoSuccess) {
  for (const char* text :
       {"", "0", "0 4096", "x 4096 ", "0 x ", "0 -1 ", "-1 4096 ", "17 4096 ",
        "0 18446744073709551616 ", "4294967296 4096 "}) {
    EXPECT_FALSE(ParseOutcome(text).status.ok()) << text;
  }
}

TEST(Outcome, NoPeerTakesNothing) {
  const std::vector<std::string> outcomes = {Good(4096), Good(0)};
  EXPECT_FALSE(VerdictOf(outcomes, {.rank = 0, .ranks = 2}, kTopology).ok());
  EXPECT_TRUE(VerdictOf({Good(0)}, {.rank = 0, .ranks = 1}, kTopology).ok());
}

TEST(Outcome, ShortestSliceIsEveryones) {
  EXPECT_EQ(CommonSlice({Good(4096), Good(1024), Good(8192)}), 1024u);
}

TEST(Outcome, VerdictIsTheErrorThatTellsMostAndItsRank) {
  const std::vector<std::string> outcomes = {
      Good(64),
      OutcomeText({.status = absl::UnavailableError("rank 2 is gone")}),
      OutcomeText({.status = absl::ResourceExhaustedError("no memory")})};
  for (int rank = 0; rank < 2; ++rank) {
    const absl::Status verdict =
        VerdictOf(outcomes, {.rank = rank, .ranks = 3}, kTopology);
    EXPECT_THAT(std::string(verdict.message()),
                AllOf(HasSubstr("no memory"),
                      HasSubstr("origin: rank 2 (host c, pid 9)"),
                      HasSubstr(absl::StrCat("rank ", rank, ":"))));
  }
  EXPECT_EQ(VerdictOf(outcomes, {.rank = 2, .ranks = 3}, kTopology),
            absl::ResourceExhaustedError("no memory"));
  EXPECT_TRUE(
      VerdictOf({Good(64), Good(64)}, {.rank = 0, .ranks = 2}, kTopology).ok());
}

}  // namespace
}  // namespace trnccl
