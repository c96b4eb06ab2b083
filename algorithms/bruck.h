// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Bruck's algorithms: all-gather and all-to-all in ceil(log2 n) rounds for any
// number of ranks. Picture and figures are in bruck.cc.
//
// Thread rule: pure functions.
//
//   Program program = bruck::AllGather({.ranks = 4, .rank = 2});
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::bruck {

Program AllGather(const Shape& shape);
Program AllToAll(const Shape& shape);

}  // namespace trnccl::bruck
