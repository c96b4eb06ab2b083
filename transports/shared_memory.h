// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Memory that several processes of one user on one machine can map: a sealed
// memfd each, private to the user, gone with the last process that has it. Not
// a way to hand over data: that's what transports are for.
//
// All its pages are taken when it's made, so a shortage is an error then and
// no SIGBUS later. Its file can't shrink under a peer that has mapped it. One
// process has one mapping of one memory, however many ranks live in it.
//
// Thread rule: free functions are thread-safe; objects thread-compatible.
//
//   ASSIGN_OR_RETURN(std::byte* buffer, AllocateShared(bytes));
//   std::optional<SharedPiece> piece = FindShared(buffer + 64, 128);
//   ... a peer: ASSIGN_OR_RETURN(auto mapping, MapShared(piece->memory, ...));
//   RETURN_IF_ERROR(FreeShared(buffer));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trnccl {

// What a peer needs in order to map a memory; may travel as bytes.
struct SharedReference {
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t inode = 0;
  uint64_t bytes = 0;

  bool operator==(const SharedReference&) const = default;
};

struct SharedPiece {
  SharedReference memory;
  uint64_t offset = 0;
};

// A share in this process's mapping of a memory, unmapped with the last share.
class SharedMapping {
 public:
  struct Extent;

  SharedMapping() = default;
  explicit SharedMapping(std::shared_ptr<const Extent> extent);

  std::byte* base() const { return base_; }  // null: none
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<const Extent> extent_;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

enum class SharedAccess { kRead, kReadWrite };

// Maps a peer's memory, or finds it mapped. The reference is checked against
// what its descriptor is: InvalidArgument, NotFound or PermissionDenied if it
// isn't that memory (any more), FailedPrecondition if it has no size yet.
absl::StatusOr<SharedMapping> MapShared(const SharedReference& reference,
                                        SharedAccess access);

// Memory for buffers that peers reach where they lie; aligned to pages, zero.
absl::StatusOr<std::byte*> AllocateShared(size_t bytes);

// The pages go at once, even while a peer still has them mapped.
// InvalidArgument if the pointer isn't what AllocateShared() returned.
absl::Status FreeShared(std::byte* base);

// The allocated memory that these bytes lie in, wholly. No lock for a pointer
// outside all of them, nor for a thread's last few.
std::optional<SharedPiece> FindShared(const void* pointer, size_t bytes);

// The file beneath, for owners who need it in steps: it has a reference before
// it has a size.
class SharedFile {
 public:
  // /proc/PID/maps shows the name.
  static absl::StatusOr<SharedFile> Create(const char* name = "trnccl");
  ~SharedFile();
  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&&) = delete;

  struct Size {
    size_t bytes = 0;
    size_t filled_bytes = 0;  // from the start; the rest by FillShared()
  };
  // Once: seals the size and maps the file.
  absl::StatusOr<SharedMapping> Resize(const Size& size);

  const SharedReference& reference() const { return reference_; }

  // Gives the pages back, under everyone's mapping: they read as zero.
  void Discard();
  // Nobody can map it any more who hasn't by now.
  void Close();

 private:
  explicit SharedFile(const SharedReference& reference);

  SharedReference reference_;
};

// Takes the pages of a part of this process's mapping.
absl::Status FillShared(std::byte* base, size_t bytes);

}  // namespace trnccl
