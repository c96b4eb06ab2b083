// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a plan would cost, in seconds: enough to choose among plans, not a
// prediction. Constants come from calibration.
//
// One segment takes the time of its longest chain of steps. A step costs its
// overhead, the fold or copy of its operands, and the writing of its messages:
// once for all receivers in the node, once for each other receiver; a message
// arrives a latency after that. Further segments follow when the busiest rank
// has time, and when one of the segments in flight has ended.
//
// The ranks of a node share its network: what leaves takes each of them its
// share of the node's time, and what comes in takes no less than the node's
// rate allows, whoever sends it.
//
// The chain is found by playing all ranks where they have few steps in all
// (trees and chains, and anything small). Else every rank does much the same
// at the same time, so one rank's steps tell: each receipt that follows a send
// costs a latency.
//
// Depends on what all ranks know alike, not on shape.rank, so that all choose
// alike. Never falls when block_count grows.
//
// Thread rule: immutable. Making one plays the schedule, which costs more than
// all ways to cut a call that it then prices.
//
//   const PlanCost cost(row, {.ranks = 8}, model);
//   double seconds = cost.Seconds({.block_count = 1 << 20, .element_bytes = 4,
//                                  .segment_count = 1 << 16});
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/catalog.h"
#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl {

struct LinkModel {
  struct Link {
    double latency_s = 0;         // from written to readable
    double message_s = 0;         // of the sender, for each message
    double receive_s = 0;         // of the receiver, for each message
    double seconds_per_byte = 0;  // of the sender; across, of its whole node
  };
  Link same_node;
  Link other_node;
  double step_s = 0;                 // overhead of a step
  double fold_seconds_per_byte = 0;  // of each operand
  double copy_seconds_per_byte = 0;
  // The kernel's copying between processes of a node.
  struct PeerCopy {
    double call_s = 0;
    double seconds_per_byte = 0;
  };
  PeerCopy peer_copy;
  double ranks_per_core = 1;  // above 1, ranks wait for each other's turns
};

// A call, and how it's cut.
struct CallCut {
  int64_t block_count = 0;  // of the largest block
  int64_t element_bytes = 1;
  int64_t segment_count = 1;
  int segments_in_flight = 1;
};

class PlanCost {
 public:
  // The row is legal for the shape; without a grid all ranks are in one node.
  PlanCost(const Algorithm& algorithm, const Shape& shape,
           const LinkModel& model);

  double Seconds(const CallCut& cut) const;
  // What the busiest node sends to others, in blocks of the call.
  double sent_across() const { return sent_across_; }
  // Of memory, for who keeps it.
  size_t bytes() const {
    return played_.size() * sizeof(Played) + awaited_.size() * sizeof(Awaited);
  }

 private:
  // What a step or a rank costs: an amount, and more for the bytes of a chunk.
  struct Linear {
    double fixed_s = 0;
    double seconds_per_chunk_byte = 0;

    double At(double chunk_bytes) const {
      return fixed_s + seconds_per_chunk_byte * chunk_bytes;
    }
    Linear& operator+=(const Linear& other);
  };
  struct Played {
    size_t rank = 0;
    size_t lane = 0;  // among all ranks' lanes
    Linear work;
    size_t messages_end = 0;  // in awaited_
  };
  struct Awaited {
    size_t step = 0;  // in played_, that sent it
    double latency_s = 0;
  };
  // Of one rank that stands for all.
  struct Told {
    Linear busy;
    double waits_s = 0;
    int waits_across = 0;
  };
  // Of one segment.
  struct SegmentCost {
    double chain_s = 0;  // from start to end
    double busy_s = 0;   // of the busiest rank or node
  };
  class Prices;

  void Play(const Schedule& schedule, const Prices& prices);
  static Told Tell(const Program& program, int rank, const Prices& prices);
  SegmentCost PricePlayed(double chunk_bytes) const;
  SegmentCost PriceTold(double chunk_bytes) const;

  const double ranks_per_core_;
  int64_t chunks_per_block_ = 1;
  size_t ranks_ = 0;
  size_t lanes_ = 0;  // of all ranks
  std::vector<Played> played_;
  std::vector<Awaited> awaited_;
  std::vector<Told> told_;  // if nothing is played
  // What the busiest node's network takes to bring in what's for it.
  Linear incoming_;
  double sent_across_ = 0;
};

}  // namespace trnccl
