// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The proof of a schedule: plays all ranks symbolically and refuses, with the
// rank, lane and step, whatever is wrong. It proves:
//  - both ends of each message name the same chunks in the same order;
//  - every rank ends with what the spec says, each contribution in it exactly
//    once, and outside its output nothing is written;
//  - `completes` and `partial` are marked exactly where they are true, so that
//    prepare and finish are each applied once;
//  - all ranks' copies of an output have the same fold tree, hence the same
//    bits; with left_fold the tree is the left fold 0..n-1, and no partial
//    result rests in an output, which has no room for its wider type;
//  - no deadlock when every link holds exactly one message;
//  - scratch stays in its bounds, nothing is read before it's written, lanes
//    share nothing that one of them writes;
//  - with in_place: all of this still holds when output and input are one
//    (algorithms/rank_memory.h says how they overlap);
//  - with by_reference: no place is overwritten while a message that points to
//    it may still be read, in any order of events.
//
// Thread rule: pure function.
//
//   RETURN_IF_ERROR(Verify(schedule, {.collective = Collective::kAllReduce,
//                                     .ranks = n, .proofs = row.proofs}));
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "algorithms/catalog.h"
#include "algorithms/schedule.h"

namespace trnccl {

struct Claim {
  Collective collective = Collective::kAllReduce;
  int ranks = 1;
  int root = 0;
  Algorithm::Proofs proofs;
};

// What the proof counted: the figures that each family's file states.
struct Proven {
  int64_t rounds = 0;  // the longest chain of messages from start to end
  // Of the busiest rank, in chunks of the whole call's chunk total.
  int64_t most_chunks_sent = 0;
  int64_t most_chunks_received = 0;
  int64_t most_messages_sent = 0;
};

absl::StatusOr<Proven> Verify(const Schedule& schedule, const Claim& claim);

// The schedule of all ranks by the row's builder.
Schedule BuildSchedule(const Algorithm& algorithm, Shape shape);

}  // namespace trnccl
