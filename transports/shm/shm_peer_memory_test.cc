// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/shm_peer_memory.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transports/shared_memory.h"

namespace trnccl::shm {
namespace {

constexpr size_t kBytes = 10'000;
constexpr Unmapped kOffered = Unmapped::kOffered;

// Two ranks of this process.
class ShmPeerMemoryTest : public testing::Test {
 protected:
  struct Words {
    std::atomic<uint32_t> inside = 0;
    std::atomic<uint32_t> left = 0;

    GateWords words() { return {.inside = &inside, .left = &left}; }
  };

  ShmPeerMemoryTest() {
    for (int i = 0; i < static_cast<int>(kBytes); ++i) {
      heap_[static_cast<size_t>(i)] = static_cast<std::byte>(i * 7 % 251);
    }
    std::memcpy(shared_, heap_.data(), kBytes);
  }
  ~ShmPeerMemoryTest() override { EXPECT_TRUE(FreeShared(shared_).ok()); }

  void ExpectReads(PeerMemory& reader, const MemoryOffer& offer) {
    std::vector<std::byte> target(kBytes);
    const OfferedSource source = {.offer = offer, .bytes = kBytes};
    for (size_t at = 0; at < kBytes; at += kBytes / 4) {
      auto read = reader.Read(source, at, {target.data() + at, kBytes / 4});
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(*read);
    }
    EXPECT_EQ(target, heap_);
  }
  void ExpectRefused(const MemoryOffer& offer, const std::string& cause) {
    std::vector<std::byte> target(kBytes);
    const auto read =
        reader_.Read({.offer = offer, .bytes = kBytes}, 0, target);
    ASSERT_FALSE(read.ok());
    EXPECT_NE(read.status().ToString().find(cause), std::string::npos)
        << read.status();
    EXPECT_EQ(target, std::vector<std::byte>(kBytes));
    EXPECT_EQ(words_[1].inside.load(), 0u);
  }

  std::vector<std::byte> heap_ = std::vector<std::byte>(kBytes);
  std::byte* shared_ = *AllocateShared(kBytes);
  Words words_[2];
  Gate gates_[2] = {Gate(words_[0].words(), {{1, words_[1].words()}}),
                    Gate(words_[1].words(), {{0, words_[0].words()}})};
  ShmPeerMemory owner_ = ShmPeerMemory({.gate = &gates_[0],
                                        .pids = {getpid()},
                                        .maps = true,
                                        .reaches_unmapped = true});
  ShmPeerMemory reader_ = ShmPeerMemory({.gate = &gates_[1],
                                         .pids = {getpid()},
                                         .maps = true,
                                         .reaches_unmapped = true});
};

TEST_F(ShmPeerMemoryTest, ReadsMappedAndOtherMemory) {
  ExpectReads(reader_, *owner_.Offer(heap_, kOffered));
  ExpectReads(reader_, *owner_.Offer({shared_, kBytes}, Unmapped::kRefused));
  ShmPeerMemory mapless(
      {.gate = &gates_[0], .pids = {getpid()}, .reaches_unmapped = true});
  ExpectReads(reader_, *mapless.Offer({shared_, kBytes}, kOffered));
}

TEST_F(ShmPeerMemoryTest, OffersNothingThatNobodyMayReach) {
  EXPECT_EQ(owner_.Offer(heap_, Unmapped::kRefused), std::nullopt);
  ShmPeerMemory bound({.gate = &gates_[0], .pids = {getpid()}});
  EXPECT_EQ(bound.Offer(heap_, kOffered), std::nullopt);
  EXPECT_EQ(bound.Offer({shared_, kBytes}, kOffered), std::nullopt);
  EXPECT_EQ(
      *bound.Read({.offer = *owner_.Offer(heap_, kOffered), .bytes = kBytes}, 0,
                  heap_),
      false);
}

TEST_F(ShmPeerMemoryTest, SaysThatAPeerHasLeft) {
  const MemoryOffer offer = *owner_.Offer(heap_, kOffered);
  ExpectReads(reader_, offer);
  ASSERT_TRUE(owner_.Leave().ok());
  ExpectRefused(offer, "rank 0 has given up");
}

TEST_F(ShmPeerMemoryTest, RefusesOffersThatCannotBe) {
  const auto refused = [this](const auto& change) {
    for (const std::byte* memory : {heap_.data(), shared_}) {
      OfferedBuffer buffer =
          *OwnProcess().OfferBuffer({memory, kBytes}, kOffered);
      change(buffer);
      MemoryOffer offer;
      std::memcpy(offer.bytes.data(), &buffer, sizeof(buffer));
      ExpectRefused(offer, "rank 0 offers what isn't 10000 bytes");
    }
  };
  refused([](OfferedBuffer& b) { b.kind = OfferedBuffer::kNone; });
  refused([](OfferedBuffer& b) { b.kind = OfferedBuffer::Kind{9}; });
  refused([](OfferedBuffer& b) { b.piece.memory.bytes = kBytes - 1; });
  refused([](OfferedBuffer& b) {
    b.kind = OfferedBuffer::kProcess;
    b.piece.memory.pid = 1;
  });
  refused([](OfferedBuffer& b) {
    b.kind = OfferedBuffer::kShared;
    b.piece.offset = UINT64_MAX - 5;
  });
}

// Then messages carry it.
TEST_F(ShmPeerMemoryTest, SaysWhatItCannotReach) {
  OfferedBuffer buffer = *OwnProcess().OfferBuffer({shared_, kBytes}, kOffered);
  buffer.piece.memory.inode += 1;
  MemoryOffer offer;
  std::memcpy(offer.bytes.data(), &buffer, sizeof(buffer));
  EXPECT_EQ(*reader_.Read({.offer = offer, .bytes = kBytes}, 0, heap_), false);
}

}  // namespace
}  // namespace trnccl::shm
