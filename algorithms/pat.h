// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Parallel trees with aggregated messages (PAT): logarithmic all-gather and
// reduce-scatter whose large messages go to near partners, as Bruck's don't.
// Picture and figures are in pat.cc.
//
// Thread rule: pure functions.
//
//   Program program = pat::AllGather({.ranks = 4, .rank = 2});
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::pat {

Program ReduceScatter(const Shape& shape);
Program AllGather(const Shape& shape);
Program AllReduce(const Shape& shape);

}  // namespace trnccl::pat
