// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Recursive doubling: all-reduce of the whole block in the fewest rounds, for
// small calls. Picture and figures are in recursive_doubling.cc.
//
// Thread rule: pure functions.
//
//   Program program = recursive_doubling::AllReduce({.ranks = 4, .rank = 2});
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::recursive_doubling {

Program AllReduce(const Shape& shape);

}  // namespace trnccl::recursive_doubling
