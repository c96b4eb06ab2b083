// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/test_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "ccl/base/check.h"
#include "transports/inproc/inproc.h"
#include "transports/shm/shm.h"

namespace trnccl {
namespace {

constexpr std::byte kGuard{0xa5};
constexpr int kLongSteps = 1'000'000;

std::unique_ptr<Transport> MakeTransport(const TestWorld::Options& options) {
  auto transport =
      options.wire == Wire::kInproc
          ? MakeInprocTransport({.slice_bytes = options.slice_bytes})
          : MakeShmTransport({.arena_bytes = options.arena_bytes});
  TRNCCL_CHECK(transport.ok());
  return *std::move(transport);
}

std::byte ByteAt(const MessageName& name, size_t position) {
  // A linear form with odd, unrelated factors: quick enough for long messages,
  // and no two of a test's messages agree over more than a few bytes.
  const uint64_t base = static_cast<uint64_t>(name.source) * 0x9e3779b1 +
                        static_cast<uint64_t>(name.tag) * 0x85ebca77 +
                        static_cast<uint64_t>(name.number) * 0xc2b2ae3d;
  const uint64_t mixed = (base + position) * 0x9e3779b97f4a7c15;
  return static_cast<std::byte>(mixed >> 56);
}

}  // namespace

TestWorld::TestWorld(const Options& options)
    : ranks_(static_cast<size_t>(options.ranks)), random_(options.seed) {
  for (Rank& rank : ranks_) rank.transport = MakeTransport(options);
  std::vector<std::thread> threads;
  for (int self = 0; self < options.ranks; ++self) {
    ConnectOptions connect = {
        .rank = self, .lanes = 2, .deadline = Deadline::After(60'000)};
    At(self).routes.resize(ranks_.size());
    for (int peer = 0; peer < options.ranks; ++peer) {
      if (peer == self) continue;
      At(self).routes[static_cast<size_t>(peer)] = {
          .transport = At(self).transport.get(),
          .peer_index = static_cast<uint32_t>(connect.peers.size())};
      connect.peers.push_back({peer, transport(peer).traits().address});
    }
    threads.emplace_back([this, self, connect] {
      const absl::Status status = transport(self).Connect(connect);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int self = 0; self < options.ranks; ++self) {
    At(self).point_to_point =
        std::make_unique<PointToPoint>(PointToPoint::Options{
            .membership = {.rank = self, .ranks = options.ranks},
            .routes = &At(self).routes,
            .cookie = kCookie,
            .first_id = options.first_id});
  }
}

void TestWorld::Step(int rank) {
  const absl::Status status = transport(rank).Progress();
  ASSERT_TRUE(status.ok()) << status;
  const absl::StatusOr<bool> moved = At(rank).point_to_point->Advance();
  ASSERT_TRUE(moved.ok()) << moved.status();
}

void TestWorld::StepAll() {
  for (size_t i = 0; i < 4 * ranks_.size(); ++i) {
    Step(static_cast<int>(random_() % ranks_.size()));
  }
  for (size_t i = 0; i < ranks_.size(); ++i) Step(static_cast<int>(i));
}

bool TestWorld::RunUntil(const std::vector<const Transfer*>& transfers) {
  size_t done = 0;
  for (int i = 0; i < kLongSteps; ++i) {
    while (done < transfers.size() && transfers[done]->done) ++done;
    if (done == transfers.size()) return true;
    StepAll();
    if (testing::Test::HasFatalFailure()) return false;
  }
  return false;
}

GuardedBuffer::GuardedBuffer(size_t bytes)
    : bytes_(bytes + 2 * kGuardBytes, kGuard) {}

void GuardedBuffer::Fill(const MessageName& name) {
  for (size_t i = 0; i < size(); ++i) data()[i] = ByteAt(name, i);
}

bool GuardedBuffer::Holds(const MessageName& name, size_t count) {
  if (count > size()) return false;
  for (size_t i = 0; i < count; ++i) {
    if (data()[i] != ByteAt(name, i)) return false;
  }
  const auto guard = [](std::byte byte) { return byte == kGuard; };
  const auto begin = bytes_.begin();
  return std::all_of(begin, begin + kGuardBytes, guard) &&
         std::all_of(begin + static_cast<ptrdiff_t>(kGuardBytes + count),
                     bytes_.end(), guard);
}

Transfer SendOf(GuardedBuffer& buffer, int peer, int64_t tag) {
  return {.direction = Transfer::kSend,
          .peer = peer,
          .tag = tag,
          .buffer = buffer.data(),
          .bytes = buffer.size()};
}

Transfer ReceiveInto(GuardedBuffer& buffer, int peer, int64_t tag) {
  Transfer receive = SendOf(buffer, peer, tag);
  receive.direction = Transfer::kReceive;
  return receive;
}

}  // namespace trnccl
