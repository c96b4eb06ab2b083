// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

SharedReference ReferenceOf(std::byte* base) {
  auto piece = FindShared(base, 1);
  EXPECT_TRUE(piece.has_value());
  return piece.value_or(SharedPiece{}).memory;
}

class SharedMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    auto base = AllocateShared(3 * 4096);
    ASSERT_TRUE(base.ok()) << base.status();
    base_ = *base;
  }
  void TearDown() override {
    if (base_ == nullptr) return;
    EXPECT_TRUE(FreeShared(base_).ok());
  }
  std::byte* base_ = nullptr;
};

TEST(SharedMemoryPeer, SeesAndWritesWhatItMaps) {
  // The child is forked first, so that it has nothing but the reference.
  int to_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  const pid_t child = fork();
  if (child == 0) {
    SharedReference reference;
    if (read(to_child[0], &reference, sizeof(reference)) < 0) _exit(1);
    auto mapping = MapShared(reference, SharedAccess::kReadWrite);
    if (!mapping.ok()) _exit(2);
    if (mapping->base()[5000] != std::byte{42}) _exit(3);
    mapping->base()[5001] = std::byte{43};
    _exit(0);
  }
  auto base = AllocateShared(3 * 4096);
  ASSERT_TRUE(base.ok()) << base.status();
  (*base)[5000] = std::byte{42};
  const SharedReference reference = ReferenceOf(*base);
  ASSERT_EQ(write(to_child[1], &reference, sizeof(reference)),
            static_cast<ssize_t>(sizeof(reference)));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ((*base)[5001], std::byte{43});
  EXPECT_TRUE(FreeShared(*base).ok());
  close(to_child[0]);
  close(to_child[1]);
}

TEST_F(SharedMemory, HasOneMappingInAProcess) {
  const SharedReference reference = ReferenceOf(base_);
  auto mapping = MapShared(reference, SharedAccess::kRead);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ(mapping->base(), base_);
}

TEST_F(SharedMemory, IsFoundByAnyPieceOfItAndNoMore) {
  const auto piece = FindShared(base_ + 100, 3 * 4096 - 100);
  ASSERT_TRUE(piece.has_value());
  EXPECT_EQ(piece->offset, 100u);
  EXPECT_TRUE(FindShared(base_ + 3 * 4096 - 1, 1).has_value());
  EXPECT_FALSE(FindShared(base_ + 100, 3 * 4096).has_value());
  EXPECT_FALSE(FindShared(base_, SIZE_MAX).has_value());
  EXPECT_FALSE(FindShared(&piece, 1).has_value());
  EXPECT_FALSE(FindShared(nullptr, 0).has_value());
}

TEST_F(SharedMemory, IsNotFoundOnceFreed) {
  std::byte* const base = base_;
  ASSERT_TRUE(FindShared(base, 1).has_value());
  ASSERT_TRUE(FreeShared(base_).ok());
  base_ = nullptr;
  EXPECT_FALSE(FindShared(base, 1).has_value());
  EXPECT_FALSE(FreeShared(base).ok());
}

TEST_F(SharedMemory, GivesItsPagesBackUnderAPeersMapping) {
  std::memset(base_, 1, 3 * 4096);
  auto mapping = MapShared(ReferenceOf(base_), SharedAccess::kRead);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  ASSERT_TRUE(FreeShared(base_).ok());
  base_ = nullptr;
  unsigned char resident[3] = {};
  ASSERT_EQ(mincore(mapping->base(), 3 * 4096, resident), 0);
  EXPECT_EQ((resident[0] | resident[1] | resident[2]) & 1, 0);
  EXPECT_EQ(mapping->base()[0], std::byte{0});
}

TEST_F(SharedMemory, CannotShrinkOrBeTakenForAnother) {
  SharedReference reference = ReferenceOf(base_);
  EXPECT_NE(ftruncate(reference.fd, 0), 0);
  struct stat status = {};
  ASSERT_EQ(fstat(reference.fd, &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  reference.inode += 1;
  EXPECT_EQ(MapShared(reference, SharedAccess::kRead).status().code(),
            absl::StatusCode::kInvalidArgument);
  reference.inode -= 1;
  reference.bytes *= 2;
  EXPECT_EQ(MapShared(reference, SharedAccess::kRead).status().code(),
            absl::StatusCode::kInvalidArgument);
  reference.fd = 9999;
  EXPECT_EQ(MapShared(reference, SharedAccess::kRead).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(SharedMemoryThreads, FindWhileOthersComeAndGo) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 100; ++round) {
        auto base = AllocateShared(4096 * (i + 1));
        ASSERT_TRUE(base.ok()) << base.status();
        const auto piece = FindShared(*base + 7, 1);
        ASSERT_TRUE(piece.has_value());
        EXPECT_EQ(piece->offset, 7u);
        EXPECT_EQ(piece->memory.bytes, 4096u * (i + 1));
        ASSERT_TRUE(FreeShared(*base).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace trnccl
