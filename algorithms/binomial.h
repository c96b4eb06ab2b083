// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Binomial trees: log2 n rounds from any root. Picture and figures are in
// binomial.cc.
//
// Thread rule: pure functions.
//
//   Program program = binomial::Broadcast({.ranks = 4, .rank = 2});
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::binomial {

Program Broadcast(const Shape& shape);
Program Reduce(const Shape& shape);
Program Gather(const Shape& shape);
Program Scatter(const Shape& shape);

}  // namespace trnccl::binomial
