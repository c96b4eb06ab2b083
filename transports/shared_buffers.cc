// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The buffers of AllocateShared(), and how a pointer finds its own.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/mutex.h"
#include "ccl/base/status_macros.h"
#include "transports/shared_memory.h"

namespace trnccl {
namespace {

struct Buffer {
  SharedFile file;
  SharedMapping mapping;
};

class Buffers {
 public:
  // Never destroyed: threads may outlive static objects.
  static Buffers& Get() {
    static Buffers& buffers = *new Buffers;
    return buffers;
  }

  void Add(Buffer buffer) {
    const auto base = reinterpret_cast<uintptr_t>(buffer.mapping.base());
    MutexLock lock(mutex_);
    begin_ = std::min(begin_.load(), base);
    end_ = std::max(end_.load(), base + buffer.mapping.bytes());
    buffers_.emplace(base, std::move(buffer));
  }

  std::optional<Buffer> Remove(std::byte* base) {
    MutexLock lock(mutex_);
    const auto found = buffers_.find(reinterpret_cast<uintptr_t>(base));
    if (found == buffers_.end()) return std::nullopt;
    generation_.fetch_add(1, std::memory_order_release);
    std::optional<Buffer> buffer = std::move(found->second);
    buffers_.erase(found);
    return buffer;
  }

  struct Found {
    uintptr_t base = 0;
    size_t bytes = 0;  // 0: none
    SharedReference memory;
    uint64_t generation = 0;

    bool holds(uintptr_t begin, size_t length) const {
      return begin >= base && begin - base <= bytes &&
             length <= bytes - (begin - base);
    }
  };

  // The last buffer that begins no later than `begin`.
  Found Find(uintptr_t begin) {
    MutexLock lock(mutex_);
    auto next = buffers_.upper_bound(begin);
    if (next == buffers_.begin()) return {};
    const auto& [base, buffer] = *std::prev(next);
    return {.base = base,
            .bytes = buffer.mapping.bytes(),
            .memory = buffer.file.reference(),
            .generation = generation()};
  }

  // Bounds of all buffers there ever were.
  bool may_hold(uintptr_t begin) const {
    return begin >= begin_.load(std::memory_order_relaxed) &&
           begin < end_.load(std::memory_order_relaxed);
  }
  // Changes when a buffer goes, so that what a thread remembers is void.
  uint64_t generation() const {
    return generation_.load(std::memory_order_acquire);
  }

 private:
  std::atomic<uintptr_t> begin_ = UINTPTR_MAX;
  std::atomic<uintptr_t> end_ = 0;
  std::atomic<uint64_t> generation_ = 0;
  Mutex mutex_;
  std::map<uintptr_t, Buffer> buffers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::byte*> AllocateShared(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (bytes > SIZE_MAX / 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes, " bytes of shared memory are more than fit"));
  }
  const size_t rounded = std::max(page, (bytes + page - 1) / page * page);
  ASSIGN_OR_RETURN(SharedFile file, SharedFile::Create());
  ASSIGN_OR_RETURN(SharedMapping mapping,
                   file.Resize({.bytes = rounded, .filled_bytes = rounded}));
  RETURN_IF_ERROR(FillShared(mapping.base(), rounded));
  std::byte* base = mapping.base();
  Buffers::Get().Add({std::move(file), std::move(mapping)});
  return base;
}

absl::Status FreeShared(std::byte* base) {
  std::optional<Buffer> buffer = Buffers::Get().Remove(base);
  if (!buffer.has_value()) {
    return absl::InvalidArgumentError(
        "freeing shared memory: no buffer begins there");
  }
  // A forked child lets go of its own mapping alone.
  if (buffer->file.reference().pid == getpid()) buffer->file.Discard();
  return absl::OkStatus();
}

std::optional<SharedPiece> FindShared(const void* pointer, size_t bytes) {
  Buffers& buffers = Buffers::Get();
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  if (!buffers.may_hold(begin)) return std::nullopt;
  thread_local std::array<Buffers::Found, 4> recent = {};
  thread_local size_t oldest = 0;
  const uint64_t generation = buffers.generation();
  for (const Buffers::Found& found : recent) {
    if (found.generation == generation && found.bytes > 0 &&
        found.holds(begin, bytes)) {
      return SharedPiece{found.memory, begin - found.base};
    }
  }
  const Buffers::Found found = buffers.Find(begin);
  if (found.bytes == 0 || !found.holds(begin, bytes)) return std::nullopt;
  recent[oldest++ % recent.size()] = found;
  return SharedPiece{found.memory, begin - found.base};
}

}  // namespace trnccl
