// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Recursive halving and doubling for any number of ranks: the fewest bytes in
// the fewest rounds. Picture and figures are in halving.cc.
//
// Thread rule: pure functions.
//
//   Program program = halving::AllReduce({.ranks = 4, .rank = 2});
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::halving {

Program AllReduce(const Shape& shape);
Program ReduceScatter(const Shape& shape);
Program AllGather(const Shape& shape);

}  // namespace trnccl::halving
