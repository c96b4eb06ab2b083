// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a collective call asks for, and the fingerprint of it that rides in the
// envelope of every message, so that a rank that called something else is found
// out at its first message.
//
// Thread rule: plain values and pure functions.
//
//   Fingerprint mine = FingerprintOf(call, {.cookie = c, .sequence = 7});
//   if (message->envelope != mine.envelope) return Mismatch(...);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "algorithms/layout.h"
#include "ccl/base/types.h"
#include "ccl/kernels/fold.h"
#include "transports/transport.h"

namespace trnccl {

struct CollectiveCall {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  PremulFactor factor;  // kPremulSum only, this rank's own
  int root = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  BlockCounts input_counts;   // of the blocks that this rank's input holds
  BlockCounts output_counts;  // likewise
};

// The second word of a call's fingerprint.
struct CallShape {
  Collective collective;
  DataType type;
  ReduceOp op;  // kSum where nothing is reduced
  int root;

  constexpr uint64_t Word() const {
    return static_cast<uint64_t>(collective) |
           static_cast<uint64_t>(type) << 8 | static_cast<uint64_t>(op) << 16 |
           static_cast<uint64_t>(root) << 32;
  }
};

struct CallTag {
  uint32_t cookie = 0;    // the communicator's
  uint32_t sequence = 0;  // of the communicator's collectives, wraps
};

// The envelope that every rank's messages of this call carry. All-to-all-v is
// the exception: its third word is the count of the pair.
Envelope FingerprintOf(const CollectiveCall& call, const CallTag& tag);

// "all_reduce #7 (float32 sum, count 1024)": from an envelope, so that a peer's
// call can be named as well as one's own.
std::string DescribeCall(const Envelope& envelope);

// A rank and what it called.
struct RankCall {
  int rank = 0;
  Envelope envelope;
};

// The error of two ranks that made different calls; names both.
absl::Status MismatchError(const RankCall& mine, const RankCall& theirs);

struct MessageSize {
  size_t bytes = 0;
  size_t expected_bytes = 0;
};
// The error of a message that isn't what the schedule wants next: a mismatch,
// or one of the wrong size.
absl::Status UnexpectedMessage(const RankCall& mine, const RankCall& theirs,
                               const MessageSize& size);

}  // namespace trnccl
