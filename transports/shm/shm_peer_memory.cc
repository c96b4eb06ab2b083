// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/shm_peer_memory.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "ccl/base/origin.h"

namespace trnccl::shm {
namespace {

// Memories of peers that stay mapped between messages.
constexpr size_t kMappings = 64;

static_assert(sizeof(OfferedBuffer) <= sizeof(MemoryOffer::bytes));

}  // namespace

ShmPeerMemory::ShmPeerMemory(Options options)
    : options_(std::move(options)), mappings_(kMappings) {
  for (const pid_t pid : options_.pids) caches_.emplace_back(&own_, pid);
}

std::optional<MemoryOffer> ShmPeerMemory::Offer(
    std::span<const std::byte> buffer, Unmapped unmapped) {
  if (!options_.reaches_unmapped) unmapped = Unmapped::kRefused;
  std::optional<OfferedBuffer> offered;
  if (options_.maps) {
    offered = own_.OfferBuffer(buffer, unmapped);
  } else if (unmapped == Unmapped::kOffered) {
    offered = own_.OfferUnmapped(buffer);
  }
  if (!offered.has_value()) return std::nullopt;
  MemoryOffer offer;
  std::memcpy(offer.bytes.data(), &*offered, sizeof(*offered));
  return offer;
}

absl::StatusOr<bool> ShmPeerMemory::Read(const OfferedSource& source,
                                         size_t offset,
                                         std::span<std::byte> target) {
  TRNCCL_CHECK(offset <= source.bytes &&
               target.size() <= source.bytes - offset);
  OfferedBuffer offered;
  std::memcpy(&offered, source.offer.bytes.data(), sizeof(offered));
  const size_t peer = source.peer_index;
  Gate& gate = *options_.gate;
  const bool unmapped = offered.kind == OfferedBuffer::kProcess;
  if (!HoldsBytes(offered, source.bytes) ||
      (unmapped && offered.piece.memory.pid != options_.pids[peer])) {
    return absl::UnavailableError(absl::StrCat(
        "shm: rank ", gate.rank(peer), " offers what isn't ", source.bytes,
        " bytes of its memory; check that all ranks run the same version"));
  }
  if (unmapped && !options_.reaches_unmapped) return false;
  const absl::StatusOr<RankBuffer> buffer =
      caches_[peer].Find(offered, source.bytes, mappings_);
  bool read = false;
  bool open = gate.EnterTo(peer);
  if (open) {
    read = buffer.ok() && (*buffer + offset).Read(target).ok();
    open = gate.IsOpen(peer);
    gate.Exit();
  }
  if (open) [[likely]]
    return read;
  return WithOrigin(
      absl::UnavailableError(absl::StrCat("shm: rank ", gate.rank(peer),
                                          " has given up what it sends")),
      gate.rank(peer));
}

}  // namespace trnccl::shm
