// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What is shared memory's own beyond the contract: its costs and its limits.
#include "transports/shm/shm_transport.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "transports/doorbell.h"
#include "transports/shm/address.h"
#include "transports/shm/shm.h"

namespace trnccl::shm {
namespace {

using Pair = std::vector<std::unique_ptr<ShmTransport>>;

// Two ranks as threads of this process.
Pair ConnectedPair(const ShmOptions& options) {
  Pair pair;
  for (int rank = 0; rank < 2; ++rank) {
    auto transport = ShmTransport::Create(options);
    EXPECT_TRUE(transport.ok()) << transport.status();
    if (!transport.ok()) return {};
    pair.push_back(*std::move(transport));
  }
  const auto connect = [&](int rank) {
    ConnectOptions connect_options = {.rank = rank};
    connect_options.peers = {
        {.rank = 1 - rank, .address = pair[1 - rank]->traits().address}};
    const absl::Status status = pair[rank]->Connect(connect_options);
    EXPECT_TRUE(status.ok()) << status;
  };
  std::thread other(connect, 1);
  connect(0);
  other.join();
  return pair;
}

size_t OpenDescriptors() {
  DIR* directory = opendir("/proc/self/fd");
  size_t entries = 0;
  while (readdir(directory) != nullptr) ++entries;
  closedir(directory);
  return entries;
}

TEST(ShmTransport, ManyCommunicatorsHoldNoDescriptors) {
  auto doorbell = Doorbell::Create();
  ASSERT_TRUE(doorbell.ok()) << doorbell.status();
  const size_t before = OpenDescriptors();
  {
    std::vector<Pair> pairs;
    for (int i = 0; i < 300; ++i) {
      pairs.push_back(ConnectedPair({.doorbell = doorbell->get()}));
      ASSERT_EQ(pairs.back().size(), 2u);
    }
    // The ringer that all share.
    EXPECT_EQ(OpenDescriptors(), before + 1);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(ShmTransport, SmallMessagesTakeNoArena) {
  const Pair pair = ConnectedPair({.arena_bytes = size_t{1} << 40});
  const LinkId link = pair[0]->Link(0, 0);
  ASSERT_NE(pair[0]->Reserve({&link, 1}, 96), nullptr);
  ASSERT_TRUE(pair[0]->Send({&link, 1}, {.bytes = 96}));
  EXPECT_TRUE(pair[0]->Progress().ok());
}

TEST(ShmTransport, AnArenaThatDoesNotFitIsAnErrorOfProgress) {
  const Pair pair = ConnectedPair({.arena_bytes = size_t{1} << 40});
  const LinkId link = pair[0]->Link(0, 0);
  EXPECT_EQ(pair[0]->Reserve({&link, 1}, 97), nullptr);
  const absl::Status status = pair[0]->Progress();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.ToString().find("TRNCCL_ARENA_BYTES"), std::string::npos)
      << status;
}

TEST(ShmTransport, NoDescriptorsLeftIsAnErrorThatSaysSo) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {3, 3};
    setrlimit(RLIMIT_NOFILE, &none);
    const absl::Status status = ShmTransport::Create({}).status();
    const bool good = status.code() == absl::StatusCode::kResourceExhausted &&
                      status.ToString().find("ulimit -n") != std::string::npos;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ShmTransport, AForkedChildsEndIsNotTheRanks) {
  Pair pair = ConnectedPair({});
  const pid_t child = fork();
  if (child == 0) {
    pair.clear();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(pair[0]->control().header().closed, 0u);
}

TEST(ShmTransport, AProcessThatTookThePidIsNotTakenForThePeer) {
  auto transport = ShmTransport::Create({});
  auto peer = ShmTransport::Create({});
  ASSERT_TRUE(transport.ok() && peer.ok());
  auto address = Address::Parse((*peer)->traits().address);
  ASSERT_TRUE(address.ok());
  address->token += 1;
  std::thread other([&] {
    ConnectOptions options = {.rank = 1, .deadline = Deadline::After(200)};
    options.peers = {{.rank = 0, .address = (*transport)->traits().address}};
    EXPECT_FALSE((*peer)->Connect(options).ok());
  });
  ConnectOptions options = {.rank = 0, .deadline = Deadline::After(10'000)};
  options.peers = {{.rank = 1, .address = address->Text()}};
  const absl::Status status = (*transport)->Connect(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  other.join();
}

TEST(ShmTransport, AnotherPidNamespaceIsNamedAsTheCause) {
  auto transport = ShmTransport::Create({});
  auto peer = ShmTransport::Create({});
  ASSERT_TRUE(transport.ok() && peer.ok());
  auto address = Address::Parse((*peer)->traits().address);
  ASSERT_TRUE(address.ok());
  address->pid_namespace += 1;
  ConnectOptions options = {.rank = 0};
  options.peers = {{.rank = 1, .address = address->Text()}};
  const absl::Status status = (*transport)->Connect(options);
  EXPECT_NE(status.ToString().find("pid namespace"), std::string::npos)
      << status;
}

}  // namespace
}  // namespace trnccl::shm
