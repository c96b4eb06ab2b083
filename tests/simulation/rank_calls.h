// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The calls of a simulated rank: operations with their buffers, and whether
// what came out is what should have. What should is asked of the library's own
// planner, for the schedule, and of the interpreter, for its bits.
//
// Thread rule: thread-compatible.
//
//   CallOracle oracle(ranks, &grid, planner);
//   RankCalls calls(submission, rank, &oracle);
//   communicator->Submit(calls.operations());
//   if (calls.done()) EXPECT_EQ(calls.Check(), "");
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ccl/base/settings.h"
#include "ccl/communicator/operation.h"
#include "ccl/planner/planner.h"
#include "tests/collectives/guarded_buffer.h"
#include "tests/collectives/oracle.h"
#include "tests/simulation/scenario.h"

namespace trnccl {

// All ranks' inputs and outputs of a collective.
struct CallData {
  std::vector<Bytes> inputs;
  std::vector<Bytes> outputs;
};

class CallOracle {
 public:
  struct Options {
    int ranks = 2;
    const Grid* grid = nullptr;
    Determinism determinism = Determinism::kDefault;
    Planner* planner = nullptr;  // any rank's: all choose alike
  };
  explicit CallOracle(const Options& options) : options_(options) {}

  int ranks() const { return options_.ranks; }
  CallData DataOf(const SimCall& call);

 private:
  Options options_;
};

class RankCalls {
 public:
  RankCalls(const SimSubmission& submission, int rank, CallOracle* oracle);
  ~RankCalls();

  // To be submitted; borrowed.
  const std::vector<Operation*>& operations() const { return operations_; }
  bool done() const;
  // Of those that are done and succeeded: "" or what's wrong with a result.
  std::string Check() const;

 private:
  struct One;

  void AddCollective(const SimCall& call, int rank, CallOracle* oracle);
  void AddMessages(const SimCall& call, int rank);

  std::vector<std::unique_ptr<One>> calls_;
  std::vector<Operation*> operations_;
};

// The call as the rank makes it, but for its buffers; `counts` and `received`
// are what it borrows.
struct BorrowedCounts {
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
};
CollectiveCall CallOf(const SimCall& call, const Membership& me,
                      BorrowedCounts* counts);

}  // namespace trnccl
