// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/diagnosis.h"

#include <string>
#include <vector>

#include "bindings/cli/job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 1'700'000'000 * kSecond;

// A rank that has been in its last call since so many seconds, or has ended it.
struct At {
  uint32_t sequence = 0;
  bool done = false;
  int64_t seconds = 0;
};

JobCall AllReduce(uint32_t sequence, int64_t created_ns) {
  return {.sequence = sequence,
          .kind = "all_reduce",
          .type = "float32",
          .op = "sum",
          .count = 1 << 20,
          .bytes = 4 << 20,
          .created_ns = created_ns};
}

Member MemberAt(int rank, const At& at) {
  Member member{.rank = rank,
                .host = "here",
                .pid = 100 + rank,
                .process = "sleeping",
                .read_ns = kNow,
                .scheduled = at.sequence,
                .completed = at.done ? at.sequence : at.sequence - 1};
  JobCall call = AllReduce(at.sequence, kNow - at.seconds * kSecond);
  if (at.done) {
    call.state = JobCall::kCompleted;
    call.finished_ns = call.created_ns;
  }
  member.calls.push_back(call);
  return member;
}

JobCommunicator With(const std::vector<At>& places) {
  JobCommunicator communicator{.id = "1", .name = "world"};
  for (const At& at : places) {
    const auto rank = static_cast<int>(communicator.ranks.size());
    communicator.ranks.push_back(rank);
    communicator.members.push_back(MemberAt(rank, at));
  }
  return communicator;
}

std::vector<std::string> Said(const JobCommunicator& communicator) {
  std::vector<std::string> texts;
  for (const Finding& finding : Diagnose(communicator))
    texts.push_back(finding.text);
  return texts;
}

TEST(Diagnosis, NamesWhoIsInAnEarlierCall) {
  EXPECT_THAT(
      Said(With({{813, false, 30}, {812, false, 31}, {813, false, 30}})),
      ElementsAre("rank 1 is at call 812 all_reduce of 4 MiB for 31 s; "
                  "all others are at call 813 all_reduce of 4 MiB for "
                  "30 s"));
}

TEST(Diagnosis, NamesWhoHasNotMadeTheCall) {
  EXPECT_THAT(
      Said(With({{813, false, 30}, {812, true, 31}, {813, false, 29}})),
      ElementsAre("rank 1 has made no call since 812 all_reduce of 4 MiB, done "
                  "31 s ago; all others are at call 813 all_reduce of 4 MiB "
                  "for 30 s"));
  JobCommunicator fresh = With({{1, false, 3}, {1, false, 3}});
  fresh.members[1].scheduled = fresh.members[1].completed = 0;
  fresh.members[1].calls.clear();
  EXPECT_THAT(Said(fresh),
              ElementsAre("rank 1 has made no call yet; rank 0 is at call 1 "
                          "all_reduce of 4 MiB for 3.0 s"));
}

TEST(Diagnosis, CountsOnWhereNumbersWrap) {
  EXPECT_THAT(Said(With({{2, false, 5}, {UINT32_MAX, false, 6}})),
              ElementsAre("rank 1 is at call 4294967295 all_reduce of 4 MiB "
                          "for 6.0 s; rank 0 is at call 2 all_reduce of 4 MiB "
                          "for 5.0 s"));
}

TEST(Diagnosis, SaysThatNobodyIsBehind) {
  EXPECT_THAT(Said(With({{9, false, 2}, {9, false, 1}})),
              ElementsAre("all: ranks 0, 1 are at call 9 all_reduce of 4 MiB "
                          "for 2.0 s"));
  EXPECT_EQ(Diagnose(With({{9, true, 2}, {9, true, 2}})).front().kind, "idle");
  EXPECT_TRUE(Diagnose(With({})).empty());
}

TEST(Diagnosis, NamesBothSidesOfACallThatDiffers) {
  JobCommunicator job = With({{5, false, 1}, {5, false, 1}, {5, false, 1}});
  JobCall& other = job.members[2].calls.back();
  other.kind = "broadcast";
  other.op = "";
  other.peer = 1;
  other.count = 7;
  EXPECT_THAT(Said(job),
              Contains("call 5 differs: rank 2 makes broadcast of 7 float32, "
                       "root 1; ranks 0, 1 make all_reduce of 1048576 float32 "
                       "(sum)"));
  JobCommunicator types = With({{5, false, 1}, {5, false, 1}});
  types.members[0].calls.back().type = "int32";
  EXPECT_EQ(Diagnose(types).front().kind, "mismatch");
}

TEST(Diagnosis, NamesWhoIsStoppedMissingAndFailed) {
  JobCommunicator job = With({{5, false, 1}, {5, false, 1}, {5, false, 1}});
  job.members[0].process = "stopped";
  job.members[1].cause = "rank 1: lost (origin: rank 2)";
  job.members.pop_back();
  EXPECT_THAT(Said(job),
              ElementsAre("failed on rank 1: rank 1: lost (origin: rank 2)",
                          "rank 0 (pid 100) is stopped",
                          "rank 2 not seen here: on another host, dead, or not "
                          "to be looked at",
                          "all: ranks 0, 1 are at call 5 all_reduce of 4 MiB "
                          "for 1.0 s"));
}

TEST(Diagnosis, TellsOfMessagesThatHaveNotEnded) {
  JobCommunicator job = With({{5, true, 1}, {5, true, 1}});
  job.members[1].calls.push_back({.message = true,
                                  .kind = "recv",
                                  .count = 16,
                                  .bytes = 64,
                                  .peer = 0,
                                  .tag = 7,
                                  .created_ns = kNow - 3 * kSecond});
  EXPECT_THAT(Said(job),
              Contains("rank 1 is in recv of 64 B from rank 0, tag 7, for "
                       "3.0 s"));
}

TEST(Texts, AreShort) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(AgeText(7'000'000), "7 ms");
  EXPECT_EQ(AgeText(-1), "0 ms");
  EXPECT_EQ(AgeText(1200 * kSecond), "20 min");
  EXPECT_EQ(RanksText(std::vector<int>(100, 3)).substr(0, 8), "ranks 3,");
}

}  // namespace
}  // namespace trnccl::cli
