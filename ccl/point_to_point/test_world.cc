// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/test_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
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

constexpr size_t kBlockBytes = 4096;

// Bytes of a message come in blocks, all alike but for the number that each
// begins with: long messages are then filled and compared at memory's speed.
class Pattern {
 public:
  explicit Pattern(const MessageName& name) : seed_(SeedOf(name)) {
    for (size_t i = 0; i < kBlockBytes; ++i) {
      block_[i] = static_cast<std::byte>(Mix(seed_ + i) >> 56);
    }
  }

  const std::byte* Block(uint64_t number) {
    const uint64_t mark = Mix(seed_ - 1 - number);
    std::memcpy(block_.data(), &mark, sizeof(mark));
    return block_.data();
  }

 private:
  static uint64_t Mix(uint64_t value) { return value * 0x9e3779b97f4a7c15; }
  static uint64_t SeedOf(const MessageName& name) {
    return Mix(static_cast<uint64_t>(name.source) + 1) ^
           Mix(static_cast<uint64_t>(name.tag) + 2) << 1 ^
           Mix(static_cast<uint64_t>(name.number) + 3) << 2;
  }

  const uint64_t seed_;
  std::array<std::byte, kBlockBytes> block_;
};

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
      TRNCCL_CHECK(status.ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int self = 0; self < options.ranks; ++self) {
    if (options.wire == Wire::kShm)
      At(self).memory = MakeShmPeerMemory(transport(self));
    for (Route& route : At(self).routes) route.memory = At(self).memory.get();
    At(self).point_to_point =
        std::make_unique<PointToPoint>(PointToPoint::Options{
            .membership = {.rank = self, .ranks = options.ranks},
            .routes = &At(self).routes,
            .cookie = kCookie,
            .first_id = options.first_id,
            .unmapped_min_bytes = options.unmapped_min_bytes});
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
  Pattern pattern(name);
  for (size_t at = 0; at < size(); at += kBlockBytes) {
    std::memcpy(data() + at, pattern.Block(at / kBlockBytes),
                std::min(kBlockBytes, size() - at));
  }
}

bool GuardedBuffer::Holds(const MessageName& name, size_t count) {
  if (count > size()) return false;
  Pattern pattern(name);
  for (size_t at = 0; at < count; at += kBlockBytes) {
    if (std::memcmp(data() + at, pattern.Block(at / kBlockBytes),
                    std::min(kBlockBytes, count - at)) != 0) {
      return false;
    }
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
