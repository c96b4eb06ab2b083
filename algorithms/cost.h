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
// The chain is found by playing all ranks where they have few steps in all
// (trees and chains, and anything small). Else every rank does much the same
// at the same time, so one rank's steps tell: each receipt that follows a send
// costs a latency.
//
// Depends on what all ranks know alike, not on shape.rank, so that all choose
// alike. Never falls when block_count grows.
//
// Thread rule: pure function.
//
//   double seconds = CostSeconds({.algorithm = row, .shape = {.ranks = 8},
//                                 .block_count = 1 << 20, .element_bytes = 4,
//                                 .segment_count = 1 << 16}, model);
#pragma once

#include <cstdint>

#include "algorithms/catalog.h"
#include "algorithms/spec.h"

namespace trnccl {

struct LinkModel {
  struct Link {
    double latency_s = 0;         // from written to readable
    double message_s = 0;         // of the sender, for each message
    double seconds_per_byte = 0;  // of the sender
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

struct PlanShape {
  const Algorithm* algorithm = nullptr;  // legal for the shape
  Shape shape;              // without a grid all ranks are in one node
  int64_t block_count = 0;  // of the largest block
  int64_t element_bytes = 1;
  int64_t segment_count = 1;
  int segments_in_flight = 1;
};

double CostSeconds(const PlanShape& plan, const LinkModel& model);

}  // namespace trnccl
