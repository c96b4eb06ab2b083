// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/shared_allocator.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/torch/errors.h"
#include "ccl/trnccl.h"

namespace trnccl::torch_binding {
namespace {

// Blocks come in sizes an eighth of a power of two apart, so that one that's
// given back fits the next of about its size.
size_t BlockBytes(size_t bytes) {
  constexpr size_t kSmallest = 4096;
  if (bytes <= kSmallest) return kSmallest;
  const size_t step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

// Blocks that tensors gave back, kept for the next: making one costs several
// system calls, zeroed pages, and a mapping in each peer. A step of training
// takes blocks of one size and then of another: so twice as much may be kept as
// was ever in use at one time.
class Blocks {
 public:
  void* Take(size_t wanted) {
    const size_t bytes = BlockBytes(wanted);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto kept = kept_.find(bytes);
      if (kept != kept_.end()) {
        void* block = kept->second;
        kept_.erase(kept);
        kept_bytes_ -= bytes;
        Use(block, bytes);
        return block;
      }
    }
    void* block = nullptr;
    Check(trncclMemAlloc(&block, bytes));
    const std::lock_guard<std::mutex> lock(mutex_);
    Use(block, bytes);
    return block;
  }

  void Give(void* block) {
    std::vector<void*> surplus;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto used = used_.extract(block);
      used_bytes_ -= used.mapped();
      kept_bytes_ += used.mapped();
      kept_.emplace(used.mapped(), block);
      while (kept_bytes_ > 2 * most_used_bytes_) {
        const auto largest = std::prev(kept_.end());
        kept_bytes_ -= largest->first;
        surplus.push_back(largest->second);
        kept_.erase(largest);
      }
    }
    for (void* each : surplus) trncclMemFree(each);
  }

  SharedMemoryUse use() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {.used_bytes = used_bytes_, .kept_bytes = kept_bytes_};
  }

 private:
  void Use(void* block, size_t bytes) {
    used_.emplace(block, bytes);
    used_bytes_ += bytes;
    most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
  }

  mutable std::mutex mutex_;
  std::unordered_map<void*, size_t> used_;
  std::multimap<size_t, void*> kept_;
  size_t used_bytes_ = 0;
  size_t kept_bytes_ = 0;
  size_t most_used_bytes_ = 0;
};

// Tensors may outlive everything else of the process.
Blocks& AllBlocks() {
  static auto& blocks = *new Blocks;
  return blocks;
}

void Free(void* pointer) { AllBlocks().Give(pointer); }

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* pointer = bytes > 0 ? AllBlocks().Take(bytes) : nullptr;
    return {pointer, pointer, bytes > 0 ? &Free : &c10::detail::deleteNothing,
            c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* target, const void* source,
                 size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }
};

}  // namespace

std::shared_ptr<c10::Allocator> SharedAllocator() {
  static const auto allocator = std::make_shared<Allocator>();
  return allocator;
}

SharedMemoryUse SharedMemoryInUse() { return AllBlocks().use(); }

}  // namespace trnccl::torch_binding
