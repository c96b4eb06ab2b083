// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Connecting, and what it says when it can't.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>

#include "ccl/base/clock.h"
#include "gtest/gtest.h"
#include "transports/conformance/conformance.h"

namespace trnccl {
namespace {

std::string TextOf(const absl::Status& status) { return status.ToString(); }

TEST_P(Conformance, ARankAloneConnects) {
  auto alone = GetParam().make({});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_TRUE((*alone)->Connect({}).ok());
  EXPECT_TRUE((*alone)->Progress().ok());
}

TEST_P(Conformance, SomeRanksMayBeLeftOut) {
  // Ranks 3 and 7 of more, that this transport alone is to join.
  auto first = GetParam().make({});
  auto second = GetParam().make({});
  ASSERT_TRUE(first.ok() && second.ok());
  std::thread peer([&] {
    ConnectOptions options = {.rank = 7, .lanes = 2};
    options.peers = {{.rank = 3, .address = (*first)->traits().address}};
    const absl::Status status = (*second)->Connect(options);
    EXPECT_TRUE(status.ok()) << status;
  });
  ConnectOptions options = {.rank = 3, .lanes = 2};
  options.peers = {{.rank = 7, .address = (*second)->traits().address}};
  const absl::Status status = (*first)->Connect(options);
  EXPECT_TRUE(status.ok()) << status;
  peer.join();
  const LinkId link = (*first)->Link(0, 1);
  ASSERT_NE((*first)->Reserve({&link, 1}, 8), nullptr);
  ASSERT_TRUE((*first)->Send({&link, 1}, {.bytes = 8}));
  EXPECT_EQ((*second)->Peek((*second)->Link(0, 0), nullptr), nullptr);
  const std::vector<Transport*> both = {first->get(), second->get()};
  EXPECT_TRUE(ProgressUntil(both, [&] {
    return (*second)->Peek((*second)->Link(0, 1), nullptr) != nullptr;
  }));
  EXPECT_EQ((*second)->Peek((*second)->Link(0, 0), nullptr), nullptr);
}

TEST_P(Conformance, AnAddressThatIsNoneNamesItsRank) {
  for (const char* address : {"", "nonsense", "shm 1 2 3", "a b c d e f g"}) {
    auto transport = GetParam().make({});
    ASSERT_TRUE(transport.ok()) << transport.status();
    ConnectOptions options = {.rank = 0};
    options.peers = {{.rank = 5, .address = address}};
    const absl::Status status = (*transport)->Connect(options);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(TextOf(status).find("rank 5"), std::string::npos) << status;
  }
}

TEST_P(Conformance, APeerThatNeverConnectsIsNamedByTheDeadline) {
  if (GetParam().lazy) GTEST_SKIP() << "connects as it's needed";
  auto transport = GetParam().make({});
  auto peer = GetParam().make({});
  ASSERT_TRUE(transport.ok() && peer.ok());
  ConnectOptions options = {.rank = 1, .deadline = Deadline::After(50)};
  options.peers = {{.rank = 0, .address = (*peer)->traits().address}};
  const absl::Status status = (*transport)->Connect(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_NE(TextOf(status).find("rank 0"), std::string::npos) << status;
}

TEST_P(Conformance, ConnectingEndsByAbort) {
  if (GetParam().lazy) GTEST_SKIP() << "connects as it's needed";
  auto transport = GetParam().make({});
  auto peer = GetParam().make({});
  ASSERT_TRUE(transport.ok() && peer.ok());
  std::atomic<bool> abort = false;
  std::thread aborter([&] { abort = true; });
  ConnectOptions options = {.rank = 1, .abort = &abort};
  options.peers = {{.rank = 0, .address = (*peer)->traits().address}};
  const absl::Status status = (*transport)->Connect(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  aborter.join();
}

TEST_P(Conformance, LanesThatDifferAreAnError) {
  if (GetParam().lazy) GTEST_SKIP() << "connects as it's needed";
  auto first = GetParam().make({});
  auto second = GetParam().make({});
  ASSERT_TRUE(first.ok() && second.ok());
  absl::Status other;
  std::thread peer([&] {
    ConnectOptions options = {
        .rank = 1, .lanes = 200, .deadline = Deadline::After(10'000)};
    options.peers = {{.rank = 0, .address = (*first)->traits().address}};
    other = (*second)->Connect(options);
  });
  ConnectOptions options = {.rank = 0, .deadline = Deadline::After(10'000)};
  options.peers = {{.rank = 1, .address = (*second)->traits().address}};
  const absl::Status status = (*first)->Connect(options);
  peer.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument) << other;
}

TEST_P(Conformance, APeerThatHasDiedIsNamedAtOnce) {
  if (!GetParam().processes) GTEST_SKIP() << "ranks are no processes";
  if (GetParam().lazy) GTEST_SKIP() << "connects as it's needed";
  int from_child[2];
  ASSERT_EQ(pipe(from_child), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto peer = GetParam().make({});
    if (!peer.ok()) _exit(1);
    const std::string& address = (*peer)->traits().address;
    const auto bytes = static_cast<ssize_t>(address.size());
    _exit(write(from_child[1], address.data(), address.size()) == bytes ? 0
                                                                        : 1);
  }
  std::array<char, 1000> address = {};
  const ssize_t bytes = read(from_child[0], address.data(), address.size());
  ASSERT_GT(bytes, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(from_child[0]);
  close(from_child[1]);
  auto transport = GetParam().make({});
  ASSERT_TRUE(transport.ok()) << transport.status();
  ConnectOptions options = {.rank = 0};
  options.peers = {
      {.rank = 4,
       .address = std::string(address.data(), static_cast<size_t>(bytes))}};
  const absl::Status connected = (*transport)->Connect(options);
  EXPECT_EQ(connected.code(), absl::StatusCode::kUnavailable) << connected;
  EXPECT_NE(TextOf(connected).find("rank 4"), std::string::npos) << connected;
}

}  // namespace
}  // namespace trnccl
