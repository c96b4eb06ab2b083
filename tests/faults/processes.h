// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Ranks for tests of what happens to processes: each a child of the test, which
// can stop and kill it. Children report through memory that they share with the
// test; every wait is bounded. Make them before the test has any thread.
//
//   Processes ranks(3, [](Processes& all, int rank) {
//     trncclComm_t comm = all.Init(rank, {});
//     all.Reach(rank, 1);
//     all.Report(rank, OutcomeOf([&] { return trncclBarrier(comm, nullptr);
//     }));
//   });
//   ranks.Await(1, 1);                 // rank 1 has reached stage 1
//   kill(ranks.pid(1), SIGKILL);
//   const Outcome outcome = ranks.Result(0);
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "ccl/trnccl.h"
#include "tests/faults/outcome.h"

namespace trnccl {

// Runs the body in a child of the test, whose failures fail the test.
void InChild(const std::function<void()>& body);

class Processes {
 public:
  using Body = std::function<void(Processes& all, int rank)>;
  Processes(int ranks, const Body& body);
  // Kills who's left. What failed in any of them has failed the test.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // ---- Of a rank ----------------------------------------------------------
  // The communicator of all, by an id of rank 0's; ends the process if that
  // fails.
  trncclComm_t Init(int rank, const std::vector<std::string>& settings);
  // Tells the others how far it is.
  void Reach(int rank, int stage);
  void Report(int rank, const Outcome& outcome);

  // ---- Of the test ---------------------------------------------------------
  pid_t pid(int rank) const { return pids_[rank]; }
  // By SIGSTOP; it has stopped on return.
  void Stop(int rank);
  // What the rank reported; a failure of the test if it doesn't.
  Outcome Result(int rank);

  // ---- Of both -------------------------------------------------------------
  // Waits until the rank has reached that stage; a failure if it doesn't.
  void Await(int rank, int stage);

 private:
  struct Shared;

  Shared* shared_;
  const int ranks_;
  std::vector<pid_t> pids_;
};

}  // namespace trnccl
