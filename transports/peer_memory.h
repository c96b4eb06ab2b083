// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Reading a peer's memory where it lies, for long messages: the owner of a
// buffer hands a peer an offer of it, by a message, and the peer copies from it
// once instead of twice through slices. A rank that gives up a call leaves, and
// nobody reads its buffers any more: what was read after that counts for
// nothing.
//
// Not here: messages. Who offers learns by one when its buffer was read.
//
// Thread rule: thread-compatible; owned with its communicator.
//
//   std::optional<MemoryOffer> offer =
//       memory.Offer({buffer, bytes}, Unmapped::kOffered);
//   ... a peer, which has got the offer and `bytes` by a message: ...
//   ASSIGN_OR_RETURN(const bool read, memory.Read(
//       {.peer_index = 0, .offer = offer, .bytes = bytes}, 0, target));
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trnccl {

// What to do with memory that peers can't map.
enum class Unmapped : uint8_t { kRefused, kOffered };

// What a peer needs in order to reach a buffer; may travel as bytes.
struct MemoryOffer {
  std::array<std::byte, 40> bytes = {};

  bool operator==(const MemoryOffer&) const = default;
};

// A buffer of a peer, as messages told of it: nothing in it is trusted.
struct OfferedSource {
  size_t peer_index = 0;  // of ConnectOptions::peers
  MemoryOffer offer;
  size_t bytes = 0;  // of the whole buffer
};

class PeerMemory {
 public:
  virtual ~PeerMemory() = default;

  // For peers to read until this rank has learnt that they did, or has left.
  // Nothing where they can't reach that memory.
  virtual std::optional<MemoryOffer> Offer(std::span<const std::byte> buffer,
                                           Unmapped unmapped) = 0;

  // Copies what begins at `offset`, at most some hundreds of KiB at once. False
  // where this process can't reach it. An error, which names the peer, if that
  // has left or the offer can't be one of so many bytes.
  virtual absl::StatusOr<bool> Read(const OfferedSource& source, size_t offset,
                                    std::span<std::byte> target) = 0;

  // This rank gives up all that it has offered, for good. Waits for a peer
  // that's at it, but not for one that doesn't end; says so then.
  virtual absl::Status Leave() = 0;
};

}  // namespace trnccl
