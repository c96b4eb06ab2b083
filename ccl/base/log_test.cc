// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/base/log.h"

#include <unistd.h>

#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

class Log : public ::testing::Test {
 protected:
  void TearDown() override {
    ASSERT_TRUE(ConfigureLog(LogLevel::kWarn, "").ok());
  }
  const std::string context_ = LogContext({.rank = 1, .ranks = 3}, "world");
};

TEST_F(Log, LineSaysWhenHowBadAndWhose) {
  const std::string path = ::testing::TempDir() + "/line.log";
  ASSERT_TRUE(ConfigureLog(LogLevel::kInfo, path).ok());
  TRNCCL_LOG(LogLevel::kInfo, context_, "lanes ", 4, "\nsecond\tline");
  const std::vector<std::string> lines = LinesOf(path);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0],
              MatchesRegex("20..-..-..T..:..:.........Z INFO .rank 1/3 comm "
                           "world .*:[0-9]+. lanes 4 second line"));
}

TEST_F(Log, BelowTheLevelIsNotEvenComposed) {
  ASSERT_TRUE(ConfigureLog(LogLevel::kWarn, "").ok());
  int composed = 0;
  TRNCCL_LOG(LogLevel::kDebug, context_, "text ", ++composed);
  EXPECT_EQ(composed, 0);
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  EXPECT_TRUE(LogEnabled(LogLevel::kWarn));
  EXPECT_TRUE(LogEnabled(LogLevel::kError));
}

TEST_F(Log, FileNameHoldsHostAndProcess) {
  const std::string pattern = ::testing::TempDir() + "/named.%h.%p.log";
  ASSERT_TRUE(ConfigureLog(LogLevel::kWarn, pattern).ok());
  TRNCCL_LOG(LogLevel::kError, context_, "here");
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof(host) - 1), 0);
  EXPECT_EQ(LinesOf(absl::StrCat(::testing::TempDir(), "/named.", host, ".",
                                 getpid(), ".log"))
                .size(),
            1u);
}

TEST_F(Log, UnwritableFileIsAnErrorAndChangesNothing) {
  const absl::Status status =
      ConfigureLog(LogLevel::kTrace, "/nonexistent/folder/log");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("/nonexistent/folder/log"));
  EXPECT_FALSE(LogEnabled(LogLevel::kTrace));
}

TEST_F(Log, LinesOfManyThreadsStayWhole) {
  const std::string path = ::testing::TempDir() + "/threads.log";
  ASSERT_TRUE(ConfigureLog(LogLevel::kInfo, path).ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      for (int j = 0; j < 50; ++j) {
        TRNCCL_LOG(LogLevel::kInfo, context_, "message ", i * 50 + j, ".");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> messages;
  for (const std::string& line : LinesOf(path)) {
    messages.insert(line.substr(line.find("message")));
  }
  EXPECT_EQ(messages.size(), 200u);
  EXPECT_TRUE(messages.count("message 199."));
}

TEST_F(Log, ChangesFilesWhileOthersWrite) {
  const std::string first = ::testing::TempDir() + "/first.log";
  const std::string second = ::testing::TempDir() + "/second.log";
  ASSERT_TRUE(ConfigureLog(LogLevel::kInfo, first).ok());
  std::thread writer([this] {
    for (int i = 0; i < 100; ++i) TRNCCL_LOG(LogLevel::kInfo, context_, i);
  });
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(ConfigureLog(LogLevel::kInfo, i % 2 ? first : second).ok());
  }
  writer.join();
  EXPECT_EQ(LinesOf(first).size() + LinesOf(second).size(), 100u);
}

}  // namespace
}  // namespace trnccl
