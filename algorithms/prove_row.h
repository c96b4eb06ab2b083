// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// For the families' tests: proves a catalog row with all that it claims, and
// gives the figures that the family's file states.
//
// Thread rule: pure functions.
//
//   ForEachSize([](int n) {
//     const Proven ring = ProveRow(Collective::kAllReduce, "ring", {.ranks =
//     n}); EXPECT_EQ(ring.rounds, 2 * (n - 1));
//   });
#pragma once

#include <functional>
#include <string_view>

#include "algorithms/spec.h"
#include "algorithms/verifier.h"
#include "ccl/base/types.h"

namespace trnccl {

// Adds a test failure, and gives figures of -1, if the proof fails.
Proven ProveRow(Collective collective, std::string_view name,
                const Shape& shape);

// Calls test(n) for 1..33, 64, 100 and 129 ranks.
void ForEachSize(const std::function<void(int)>& test);

}  // namespace trnccl
