// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/recorder/process_logs.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "ccl/recorder/recorder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::MatchesRegex;

constexpr RecordedCall kAllReduce = {.kind = KindOf(Collective::kAllReduce),
                                     .type = DataType::kFloat32,
                                     .count = 4};
constexpr RecordedCall kReceive = {
    .kind = CallKind::kReceive, .type = DataType::kInt8, .count = 9, .peer = 1};

Recorder::Options OfRank(int rank) {
  return {.owner = {.membership = {.rank = rank, .ranks = 3}, .cookie = 7},
          .calls = 16};
}

// A stopped process, after `work`.
class Stopped {
 public:
  template <typename Work>
  explicit Stopped(const Work& work) : pid_(fork()) {
    if (pid_ == 0) {
      work();
      raise(SIGSTOP);
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  ~Stopped() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

std::vector<CallLog> LogsOf(pid_t pid) {
  std::vector<CallLog> logs;
  const auto read = ReadProcessLogs(pid);
  EXPECT_TRUE(read.ok()) << read.status();
  if (!read.ok()) return logs;
  for (const auto& log : *read) {
    EXPECT_TRUE(log.ok()) << log.status();
    if (log.ok()) logs.push_back(*log);
  }
  return logs;
}

TEST(ProcessLogs, TellWhatAStoppedProcessDidLast) {
  const Stopped process([] {
    static Recorder recorder(OfRank(2));
    recorder.Complete(recorder.Begin(kAllReduce));
    recorder.Complete(recorder.Begin(kAllReduce));
  });
  EXPECT_EQ(StateOf(process.pid()).state, "stopped");
  const std::vector<CallLog> logs = LogsOf(process.pid());
  ASSERT_EQ(logs.size(), 1u);
  EXPECT_EQ(logs[0].owner.cookie, 7u);
  EXPECT_EQ(logs[0].owner.membership.rank, 2);
  EXPECT_THAT(DescribeProgress(logs[0]),
              MatchesRegex("its last call: all_reduce #2 \\(float32, count 4\\)"
                           ", over [0-9]+\\.[0-9] s ago"));
}

TEST(ProcessLogs, TellWhatAStoppedProcessIsIn) {
  const Stopped process([] {
    static Recorder recorder(OfRank(0));
    recorder.Complete(recorder.Begin(kAllReduce));
    recorder.Begin(kReceive);
  });
  const std::vector<CallLog> logs = LogsOf(process.pid());
  ASSERT_EQ(logs.size(), 1u);
  EXPECT_THAT(DescribeProgress(logs[0]),
              MatchesRegex("in recv #1 from rank 1 \\(int8, count 9\\) for "
                           "[0-9]+\\.[0-9] s"));
}

TEST(ProcessLogs, AreThisProcesssToo) {
  Recorder first(OfRank(0)), second(OfRank(1));
  const std::vector<CallLog> logs = LogsOf(getpid());
  ASSERT_EQ(logs.size(), 2u);
  EXPECT_EQ(DescribeProgress(logs[0]), "has made no call yet");
}

TEST(ProcessLogs, ArentThoseOfAParent) {
  const Recorder recorder(OfRank(0));
  const Stopped child([] {});
  EXPECT_TRUE(LogsOf(child.pid()).empty());
}

TEST(ProcessLogs, ArentThereOfWhatIsGone) {
  pid_t pid = 0;
  {
    const Stopped process([] {});
    pid = process.pid();
  }
  EXPECT_FALSE(ReadProcessLogs(pid).ok());
  EXPECT_EQ(StateOf(pid).state, "gone");
}

}  // namespace
}  // namespace trnccl
