// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/process_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace trnccl::shm {
namespace {

// A child with its own copy of this process's memory.
class Child {
 public:
  Child() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  ~Child() { End(); }

  void End() {
    if (ended_) return;
    kill(pid_, SIGKILL);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
    ended_ = true;
  }

  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
  bool ended_ = false;
};

uint64_t AddressOf(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

TEST(ProcessMemory, ReadsAndWritesWhatLiesThere) {
  std::vector<uint32_t> data(300'001);
  std::iota(data.begin(), data.end(), 7u);
  const std::vector<uint32_t> original = data;
  const Child child;
  const auto bytes = std::as_writable_bytes(std::span(data));
  std::fill(data.begin(), data.end(), 0u);
  const ProcessPointer there = {.pid = child.pid(),
                                .address = AddressOf(data.data())};
  ASSERT_TRUE(ReadProcess(there, bytes).ok());
  EXPECT_EQ(data, original);
  std::reverse(data.begin(), data.end());
  const std::vector<uint32_t> reversed = data;
  ASSERT_TRUE(WriteProcess(there, bytes).ok());
  std::fill(data.begin(), data.end(), 0u);
  ASSERT_TRUE(ReadProcess(there, bytes).ok());
  EXPECT_EQ(data, reversed);
}

TEST(ProcessMemory, SaysWhichProcessAndWhyNot) {
  Child child;
  std::vector<std::byte> here(64 << 10);
  // Mapped for its first page only.
  auto* page =
      static_cast<std::byte*>(mmap(nullptr, 64 << 10, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(munmap(page + 4096, (64 << 10) - 4096), 0);
  const Child holed;
  const std::string name = std::to_string(holed.pid());
  const absl::Status read =
      ReadProcess({.pid = holed.pid(), .address = AddressOf(page)}, here);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.ToString().find("process_vm_readv of process " + name),
            std::string::npos)
      << read;
  const absl::Status write =
      WriteProcess({.pid = holed.pid(), .address = AddressOf(page)}, here);
  ASSERT_FALSE(write.ok());
  EXPECT_NE(write.ToString().find("process_vm_writev of process " + name),
            std::string::npos)
      << write;
  child.End();
  const absl::Status gone = ReadProcess(
      {.pid = child.pid(), .address = AddressOf(here.data())}, here);
  EXPECT_EQ(gone, absl::UnavailableError(
                      absl::StrCat("process ", child.pid(), " died")));
  munmap(page, 4096);
}

TEST(ProcessMemory, DoesNothingForNoBytes) {
  EXPECT_TRUE(ReadProcess({.pid = getpid(), .address = 0}, {}).ok());
  EXPECT_TRUE(WriteProcess({.pid = getpid(), .address = 0}, {}).ok());
}

}  // namespace
}  // namespace trnccl::shm
