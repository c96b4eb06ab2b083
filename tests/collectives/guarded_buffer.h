// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A buffer at an odd offset with canaries around it, on the heap or in memory
// of trncclMemAlloc(). It's filled with the canary.
//
// Thread rule: thread-compatible.
//
//   GuardedBuffer out(bytes, /*offset=*/3, GuardedBuffer::Memory::kHeap);
//   ... a call writes to out.data() ...
//   EXPECT_TRUE(out.intact());
#pragma once

#include <algorithm>
#include <cstddef>

#include "ccl/trnccl.h"
#include "gtest/gtest.h"

namespace trnccl {

inline constexpr std::byte kCanary{0xa5};

class GuardedBuffer {
 public:
  enum class Memory { kHeap, kShared };
  GuardedBuffer(size_t bytes, size_t offset, Memory memory)
      : bytes_(bytes), offset_(kCanaryBytes + offset), memory_(memory) {
    const size_t total = offset_ + bytes + kCanaryBytes;
    if (memory == Memory::kShared) {
      void* pointer = nullptr;
      EXPECT_EQ(trncclMemAlloc(&pointer, total), trncclSuccess);
      base_ = static_cast<std::byte*>(pointer);
    } else {
      base_ = new std::byte[total];
    }
    std::fill_n(base_, total, kCanary);
  }
  ~GuardedBuffer() {
    if (memory_ == Memory::kShared) {
      EXPECT_EQ(trncclMemFree(base_), trncclSuccess);
    } else {
      delete[] base_;
    }
  }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  std::byte* data() { return base_ + offset_; }
  bool intact() const {
    const auto is_canary = [](std::byte value) { return value == kCanary; };
    return std::all_of(base_, base_ + offset_, is_canary) &&
           std::all_of(base_ + offset_ + bytes_,
                       base_ + offset_ + bytes_ + kCanaryBytes, is_canary);
  }

 private:
  static constexpr size_t kCanaryBytes = 64;

  size_t bytes_;
  size_t offset_;
  Memory memory_;
  std::byte* base_;
};

}  // namespace trnccl
