// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// All-to-all as a tournament: in each round ranks meet in pairs and exchange
// their blocks, so that no rank is sent two messages at once. Picture and
// figures are in pairwise.cc.
//
// Thread rule: pure functions.
//
//   Program program = pairwise::AllToAll({.ranks = 4, .rank = 2});
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::pairwise {

Program AllToAll(const Shape& shape);

}  // namespace trnccl::pairwise
