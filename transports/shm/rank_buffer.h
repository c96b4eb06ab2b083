// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A buffer of some rank as others meet it: memory that this process has
// mapped, or memory of another process that only the kernel reaches. And what
// a rank offers of a buffer, so that peers can reach it.
//
// Thread rule: thread-compatible.
//
//   auto offer = own_process.OfferBuffer({input, bytes}, Unmapped::kOffered);
//   ... a peer: ASSIGN_OR_RETURN(RankBuffer buffer, cache.Find(offer, bytes));
//   RETURN_IF_ERROR((buffer + 64).Read(target));
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transports/peer_memory.h"
#include "transports/shared_memory.h"
#include "transports/shm/mapping_table.h"
#include "transports/shm/process_memory.h"

namespace trnccl::shm {

class RankBuffer {
 public:
  RankBuffer() = default;
  explicit RankBuffer(std::byte* mapped) : mapped_(mapped) {}
  explicit RankBuffer(const ProcessPointer& remote) : remote_(remote) {}

  // Null: only Read() and Write() reach it.
  std::byte* mapped() const { return mapped_; }
  pid_t pid() const { return remote_.pid; }  // 0: it's mapped
  RankBuffer operator+(size_t bytes) const;
  bool operator==(const RankBuffer&) const = default;

  absl::Status Read(std::span<std::byte> target) const;
  absl::Status Write(std::span<const std::byte> source) const;

 private:
  std::byte* mapped_ = nullptr;
  ProcessPointer remote_;
};

// May travel as bytes.
struct OfferedBuffer {
  enum Kind : uint8_t { kNone, kShared, kProcess };

  SharedPiece piece;  // kProcess: its pid, and the address as the offset
  Kind kind = kNone;
};

// Buffers of one process, as it offers and meets them. Asks for its number
// once, since that's a system call.
class OwnProcess {
 public:
  OwnProcess();

  pid_t pid() const { return pid_; }

  // Of memory of any kind.
  OfferedBuffer OfferUnmapped(std::span<const std::byte> buffer) const;
  // As a piece of shared memory, where it is one. Nothing where it's refused.
  std::optional<OfferedBuffer> OfferBuffer(std::span<const std::byte> buffer,
                                           Unmapped unmapped) const;

 private:
  const pid_t pid_;
};

// Whether that can be an offer of so many bytes.
bool HoldsBytes(const OfferedBuffer& offer, size_t bytes);

// Finds what a peer offers; mostly it's what it offered in the call before.
class RankBufferCache {
 public:
  // `peer`: the process of whoever makes the offers.
  RankBufferCache(const OwnProcess* own, pid_t peer) : own_(own), peer_(peer) {}

  // An error if the offer doesn't hold `bytes`, or is of another process's
  // memory that isn't shared.
  absl::StatusOr<RankBuffer> Find(const OfferedBuffer& offer, size_t bytes,
                                  MappingTable& mappings);

 private:
  const OwnProcess* own_;  // outlives this
  pid_t peer_;
  SharedReference reference_;
  SharedMapping mapping_;
};

}  // namespace trnccl::shm
