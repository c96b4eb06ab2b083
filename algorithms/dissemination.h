// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The dissemination barrier: log2 n rounds of empty messages. Picture and
// figures are in dissemination.cc.
//
// Thread rule: pure functions.
//
//   Program program = dissemination::Barrier({.ranks = 4, .rank = 2});
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::dissemination {

Program Barrier(const Shape& shape);

}  // namespace trnccl::dissemination
