// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/rank_buffer.h"

#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"

namespace trnccl::shm {

RankBuffer RankBuffer::operator+(size_t bytes) const {
  if (mapped_ != nullptr) return RankBuffer(mapped_ + bytes);
  return RankBuffer({.pid = remote_.pid, .address = remote_.address + bytes});
}

absl::Status RankBuffer::Read(std::span<std::byte> target) const {
  if (mapped_ == nullptr) return ReadProcess(remote_, target);
  std::memcpy(target.data(), mapped_, target.size());
  return absl::OkStatus();
}

absl::Status RankBuffer::Write(std::span<const std::byte> source) const {
  if (mapped_ == nullptr) return WriteProcess(remote_, source);
  std::memcpy(mapped_, source.data(), source.size());
  return absl::OkStatus();
}

OwnProcess::OwnProcess() : pid_(getpid()) {}

OfferedBuffer OwnProcess::OfferUnmapped(
    std::span<const std::byte> buffer) const {
  return {.piece = {.memory = {.pid = pid_, .bytes = buffer.size()},
                    .offset = reinterpret_cast<uint64_t>(buffer.data())},
          .kind = OfferedBuffer::kProcess};
}

std::optional<OfferedBuffer> OwnProcess::OfferBuffer(
    std::span<const std::byte> buffer, Unmapped unmapped) const {
  const auto piece = FindShared(buffer.data(), buffer.size());
  if (piece.has_value())
    return OfferedBuffer{.piece = *piece, .kind = OfferedBuffer::kShared};
  if (unmapped == Unmapped::kRefused) return std::nullopt;
  return OfferUnmapped(buffer);
}

bool HoldsBytes(const OfferedBuffer& offer, size_t bytes) {
  const SharedPiece& piece = offer.piece;
  if (piece.memory.bytes < bytes) return false;
  return offer.kind == OfferedBuffer::kProcess ||
         (offer.kind == OfferedBuffer::kShared &&
          piece.offset <= piece.memory.bytes - bytes);
}

absl::StatusOr<RankBuffer> RankBufferCache::Find(const OfferedBuffer& offer,
                                                 size_t bytes,
                                                 MappingTable& mappings) {
  if (!HoldsBytes(offer, bytes))
    return absl::InternalError("its offer reaches beyond its memory");
  const SharedPiece& piece = offer.piece;
  if (offer.kind == OfferedBuffer::kProcess) {
    if (piece.memory.pid != peer_)
      return absl::InternalError("its offer is of another process's memory");
    // Ranks may be threads of one process.
    if (piece.memory.pid == own_->pid())
      return RankBuffer(reinterpret_cast<std::byte*>(piece.offset));
    return RankBuffer({.pid = piece.memory.pid, .address = piece.offset});
  }
  if (mapping_.base() == nullptr || reference_ != piece.memory) {
    ASSIGN_OR_RETURN(mapping_, mappings.Get(piece.memory));
    reference_ = piece.memory;
  }
  return RankBuffer(mapping_.base() + piece.offset);
}

}  // namespace trnccl::shm
