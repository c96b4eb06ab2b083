// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/bootstrap.h"

#include <dirent.h>

#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
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
    EXPECT_EQ((*bootstrap)
                  ->Broadcast(root, absl::StrCat("from ", rank),
                              Deadline::After(60'000))
                  .value(),
              absl::StrCat("from ", root));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, BootstrapOfSize,
                         ::testing::Values(1, 2, 3, 8, 33, 100));

}  // namespace
}  // namespace trnccl
