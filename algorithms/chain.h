// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Chains: the whole block passes along a line of ranks; segments in flight fill
// the line. Picture and figures are in chain.cc.
//
// Thread rule: pure functions.
//
//   Program program = chain::RankOrderAllReduce({.ranks = 4, .rank = 2});
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::chain {

// Along the circle from the root, or towards it.
Program Broadcast(const Shape& shape);
Program Reduce(const Shape& shape);
// Along the ranks 0..n-1, so that the fold is the left fold.
Program RankOrderReduce(const Shape& shape);
Program RankOrderAllReduce(const Shape& shape);

}  // namespace trnccl::chain
