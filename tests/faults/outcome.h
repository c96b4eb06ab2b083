// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What became of a call that was made to fail: its result, its text, and how
// long it took; and what a test may ask of a text.
//
//   const Outcome outcome = OutcomeOf([&] { return trncclBarrier(comm, null);
//   }); EXPECT_EQ(outcome.result, trncclTimeout); EXPECT_TRUE(Says(outcome,
//   {"rank 1", "barrier", "500 ms"}));
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ccl/trnccl.h"
#include "gtest/gtest.h"

namespace trnccl {

struct Outcome {
  trncclResult_t result = trncclSuccess;
  std::string text;
  int64_t took_ms = 0;
};

Outcome OutcomeOf(const std::function<trncclResult_t()>& call);

// Whether the text has all of these in it.
testing::AssertionResult Says(const Outcome& outcome,
                              const std::vector<std::string>& parts);

// An all-reduce over all ranks, of this many float32, and whether its sums are
// right: what tells that a communicator is still good.
testing::AssertionResult Works(trncclComm_t comm, size_t count = 33);

// Far above what any error takes on a busy machine, far below any deadline.
inline constexpr int64_t kSoonMs = 10'000;

}  // namespace trnccl
