// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/bootstrap.h"

#include <dirent.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

const InterfaceChoice kLoopback = {"lo", SocketFamily::kIpv4};

UniqueId NewId() {
  absl::StatusOr<UniqueId> id = CreateUniqueId(kLoopback);
  EXPECT_TRUE(id.ok()) << id.status();
  return *std::move(id);
}

BootstrapOptions Options(int timeout_ms = 60'000) {
  BootstrapOptions options;
  options.patience.deadline = Deadline::After(timeout_ms);
  options.host = "here";
  options.agreement = "version=1\nTRNCCL_LANES=2\n";
  options.grace_ms = 2'000;
  return options;
}

// Runs `body` for every rank, a thread each.
void OnThreads(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

std::string BlobOf(int rank, int round) {
  return std::string(static_cast<size_t>(rank * 7 + round), 'a') +
         absl::StrCat(rank, ".", round);
}

void ExchangeAll(Bootstrap& bootstrap, int rounds) {
  const Membership me = bootstrap.membership();
  for (int round = 0; round < rounds; ++round) {
    const auto all =
        bootstrap.AllGather(BlobOf(me.rank, round), Deadline::After(60'000));
    ASSERT_TRUE(all.ok()) << all.status();
    ASSERT_EQ(all->size(), static_cast<size_t>(me.ranks));
    for (int rank = 0; rank < me.ranks; ++rank) {
      EXPECT_EQ((*all)[static_cast<size_t>(rank)], BlobOf(rank, round));
    }
  }
}

int OpenDescriptors() {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

class BootstrapOfSize : public ::testing::TestWithParam<int> {};

TEST_P(BootstrapOfSize, EveryRankGetsEveryBlob) {
  const int ranks = GetParam();
  const UniqueId id = NewId();
  OnThreads(ranks, [&](int rank) {
    auto bootstrap = Bootstrap::Connect(id, {rank, ranks}, Options());
    ASSERT_TRUE(bootstrap.ok()) << bootstrap.status();
    ExchangeAll(**bootstrap, 3);
    EXPECT_TRUE((*bootstrap)->Barrier(Deadline::After(60'000)).ok());
    const int root = ranks / 2;
    const auto blob = (*bootstrap)
                          ->Broadcast(root, absl::StrCat("from ", rank),
                                      Deadline::After(60'000));
    ASSERT_TRUE(blob.ok()) << blob.status();
    EXPECT_EQ(*blob, absl::StrCat("from ", root));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, BootstrapOfSize,
                         ::testing::Values(1, 2, 3, 8, 33, 100));

TEST(Bootstrap, KeepsAtMostThreeSocketsARank) {
  const UniqueId id = NewId();
  OnThreads(8, [&](int rank) {
    auto bootstrap = Bootstrap::Connect(id, {rank, 8}, Options());
    ASSERT_TRUE(bootstrap.ok()) << bootstrap.status();
    EXPECT_LE((*bootstrap)->children().size(), 2u);
    for (const TreeLink& child : (*bootstrap)->children()) {
      EXPECT_TRUE(child.socket.is_open());
    }
    ASSERT_TRUE((*bootstrap)->Barrier(Deadline::After(60'000)).ok());
  });
}

TEST(Bootstrap, BigBlobsArriveWhole) {
  const UniqueId id = NewId();
  OnThreads(3, [&](int rank) {
    auto bootstrap = Bootstrap::Connect(id, {rank, 3}, Options());
    ASSERT_TRUE(bootstrap.ok()) << bootstrap.status();
    const std::string mine(size_t{5} << 20, static_cast<char>('a' + rank));
    const auto all = (*bootstrap)->AllGather(mine, Deadline::After(60'000));
    ASSERT_TRUE(all.ok()) << all.status();
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE((*all)[static_cast<size_t>(i)] ==
                  std::string(mine.size(), static_cast<char>('a' + i)));
    }
  });
}

TEST(Bootstrap, WorksOverIpv6) {
  const UniqueId id = CreateUniqueId({"lo", SocketFamily::kIpv6}).value();
  EXPECT_THAT(id.ToString(), HasSubstr("[::1]:"));
  OnThreads(4, [&](int rank) {
    auto bootstrap = Bootstrap::Connect(id, {rank, 4}, Options());
    ASSERT_TRUE(bootstrap.ok()) << bootstrap.status();
    ExchangeAll(**bootstrap, 1);
  });
}

TEST(Bootstrap, SeveralAtOnceDoNotMix) {
  const std::vector<UniqueId> ids = {NewId(), NewId()};
  OnThreads(8, [&](int thread) {
    const UniqueId& id = ids[static_cast<size_t>(thread % 2)];
    auto bootstrap = Bootstrap::Connect(id, {thread / 2, 4}, Options());
    ASSERT_TRUE(bootstrap.ok()) << bootstrap.status();
    const auto all =
        (*bootstrap)
            ->AllGather(absl::StrCat(thread % 2), Deadline::After(60'000));
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_THAT(*all, Each(absl::StrCat(thread % 2)));
  });
}

// How far the rank is from the root, by what all ranks told of their parents.
int DepthOf(int rank, const std::vector<std::string>& parents) {
  int depth = -1;
  for (; rank >= 0; ++depth) {
    rank = std::stoi(parents[static_cast<size_t>(rank)]);
  }
  return depth;
}

// Up the tree and down again is an exchange.
TEST(Bootstrap, TakesTwoSocketsARankAndTwoLogRoundsFor256Ranks) {
  constexpr int kMany = 256;
  const int before = OpenDescriptors();
  int while_open = 0;
  std::vector<std::string> parents;
  const UniqueId id = NewId();
  OnThreads(kMany, [&](int rank) {
    auto bootstrap = Bootstrap::Connect(id, {rank, kMany}, Options());
    ASSERT_TRUE(bootstrap.ok()) << bootstrap.status();
    const auto all = (*bootstrap)
                         ->AllGather(absl::StrCat((*bootstrap)->parent().rank),
                                     Deadline::After(60'000));
    ASSERT_TRUE(all.ok()) << all.status();
    if (rank == 0) {
      parents = *all;
      while_open = OpenDescriptors();
    }
    ASSERT_TRUE((*bootstrap)->Barrier(Deadline::After(60'000)).ok());
  });
  // Both ends of the links are this process's.
  EXPECT_EQ(while_open - before, 2 * (kMany - 1));
  int depth = 0;
  for (int rank = 0; rank < kMany; ++rank) {
    depth = std::max(depth, DepthOf(rank, parents));
  }
  EXPECT_EQ(depth, 8);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(Bootstrap, FiftyTimesInOneProcessLeavesNothing) {
  int before = 0;
  for (int round = 0; round < 51; ++round) {
    const UniqueId id = NewId();
    OnThreads(3, [&](int rank) {
      auto bootstrap = Bootstrap::Connect(id, {rank, 3}, Options());
      ASSERT_TRUE(bootstrap.ok()) << bootstrap.status();
      EXPECT_TRUE((*bootstrap)->Barrier(Deadline::After(60'000)).ok());
    });
    if (round == 0) before = OpenDescriptors();
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace trnccl
