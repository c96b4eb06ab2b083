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
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ccl/base/settings.h"
#include "ccl/communicator/communicator.h"
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
    Membership planned;  // the planner's
    const Grid* grid = nullptr;
    Determinism determinism = Determinism::kDefault;
    Planner* planner = nullptr;  // of any rank: all choose alike
    const std::vector<SimSubmission>* script = nullptr;
  };
  explicit CallOracle(const Options& options) : options_(options) {}

  int ranks() const { return options_.planned.ranks; }
  CallData DataOf(const SimCall& call);
  // "" if a receive from any source has got a message that was sent there and
  // that no other one has.
  std::string CheckWild(const Transfer& receive, int rank);

 private:
  const SimMessage* Find(int64_t number) const;

  Options options_;
  std::map<int64_t, const Transfer*> taken_;  // by the message's number
};

class RankCalls {
 public:
  RankCalls(const SimSubmission& submission, int rank, CallOracle* oracle);
  ~RankCalls();

  // To be submitted; borrowed.
  const std::vector<Operation*>& operations() const { return operations_; }
  bool done() const;
  // In place of submitting them: makes the blocking calls. Whether it went the
  // way of short ones.
  bool RunOn(Communicator* communicator);
  // Of those that are done and succeeded: "" or what's wrong with a result.
  std::string Check() const;

 private:
  struct One;

  void AddCollective(const SimCall& call, int rank, CallOracle* oracle);
  void AddMessages(const SimCall& call, int rank);

  const int rank_;
  CallOracle* const oracle_;
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
