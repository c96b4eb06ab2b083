// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Receives whose data this rank reads where the senders keep it, one after the
// other, a bounded piece at a time.
//
// Thread rule: thread-compatible.
//
//   reader.Add({.receive = receive, .memory = memory, .source = source});
//   size_t left_bytes = 256 << 10;
//   ASSIGN_OR_RETURN(const auto ended, reader.Advance(&left_bytes));
//   if (ended.has_value() && ended->reached) Answer(ended->receive);
#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/point_to_point/fifo.h"
#include "ccl/point_to_point/transfer.h"
#include "transports/peer_memory.h"

namespace trnccl {

class MemoryReader {
 public:
  explicit MemoryReader(int rank) : rank_(rank) {}

  struct Read {
    Transfer* receive = nullptr;
    PeerMemory* memory = nullptr;  // null: it isn't reached
    OfferedSource source;
  };
  void Add(const Read& read) { reads_.push_back(read); }
  bool empty() const { return reads_.empty(); }

  struct Ended {
    Transfer* receive = nullptr;
    bool reached = false;  // else nothing counts as read
  };
  // Reads of the first, at most `left_bytes`, which is lowered by as many. What
  // has ended is forgotten.
  absl::StatusOr<std::optional<Ended>> Advance(size_t* left_bytes);

  // Every receive is done with this status.
  void FailAll(const absl::Status& status);

 private:
  const int rank_;
  Fifo<Read> reads_;
};

}  // namespace trnccl
