// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Rings: each rank hears its left neighbour only and speaks to its right one
// only. The fewest bytes, the most rounds. Picture and figures are in ring.cc.
//
// Thread rule: pure functions.
//
//   Program program = ring::AllReduce({.ranks = 4, .rank = 2});
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::ring {

Program AllReduce(const Shape& shape);
Program ReduceScatter(const Shape& shape);
Program AllGather(const Shape& shape);

}  // namespace trnccl::ring
