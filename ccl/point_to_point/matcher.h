// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Which receive takes which message: the earliest posted of those that match
// takes the earliest arrived of those that it matches. Messages of one source
// keep their order, and one that nothing matches stands in no other's way.
//
// Thread rule: thread-compatible.
//
//   if (Transfer* receive = matcher.TakePosted(source, tag)) {
//     Deliver(receive, message);
//   } else {
//     matcher.Keep(std::move(message));
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ccl/point_to_point/fifo.h"
#include "ccl/point_to_point/message.h"
#include "ccl/point_to_point/transfer.h"
#include "transports/peer_memory.h"

namespace trnccl {

// A message, or an offer of one.
struct Arrived {
  int source = 0;
  MessageHeader header;
  const std::byte* data = nullptr;       // null while a peer keeps it
  MemoryOffer memory;                    // of a readable one
  Transfer* local = nullptr;             // this rank's own send to itself
  std::unique_ptr<std::byte[]> payload;  // the matcher's own
  uint64_t order = 0;
};

class Matcher {
 public:
  explicit Matcher(int ranks) : sources_(static_cast<size_t>(ranks)) {}

  void Post(Transfer* receive);
  // The receive for a message of that source and tag, or null.
  Transfer* TakePosted(int source, int64_t tag);

  // Copies an eager message's data.
  void Keep(Arrived message);
  // The message for a receive.
  std::optional<Arrived> TakeArrived(const Transfer& receive);

  // What came for a receive's source or sources and wasn't matched:
  // "2 others came, the first from rank 3 with tag 9", or "".
  std::string UnmatchedText(const Transfer& receive) const;

  // Every posted receive and every local send is done with this status.
  void FailAll(const absl::Status& status);

 private:
  struct Posted {
    Transfer* transfer = nullptr;
    uint64_t order = 0;
  };
  struct Source {
    Fifo<Posted> posted;
    Fifo<Arrived> arrived;
  };

  Source& SourceOf(int rank) { return sources_[static_cast<size_t>(rank)]; }

  std::vector<Source> sources_;  // by rank
  Fifo<Posted> posted_any_source_;
  uint64_t next_order_ = 0;  // of posted receives and of arrived messages
};

}  // namespace trnccl
