// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Every rank speaks to every rank it owes something, without a relay: the
// fewest rounds. Folds are one step over all ranks in rank order. Picture and
// figures are in direct.cc.
//
// Thread rule: pure functions.
//
//   Program program = direct::AllReduceTwoStep({.ranks = 4, .rank = 2});
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::direct {

Program AllReduceOneStep(const Shape& shape);
Program AllReduceTwoStep(const Shape& shape);
Program ReduceScatter(const Shape& shape);
Program AllGather(const Shape& shape);
Program Reduce(const Shape& shape);
Program Broadcast(const Shape& shape);
Program AllToAll(const Shape& shape);
Program Gather(const Shape& shape);
Program Scatter(const Shape& shape);

}  // namespace trnccl::direct
