// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A fault of the campaign: who it meets, when, and at what the ranks are. All
// of it follows from a seed, so that it can be tried again alone.
//
//   const Fault fault = DrawFault(seed, {.kinds = {FaultKind::kKill}});
//   std::cout << Describe(fault);
//
// Thread rule: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trnccl {

enum class FaultKind {
  kKill,    // SIGKILL
  kStop,    // SIGSTOP
  kStarve,  // makes no more calls, and lives
  kLeave,   // destroys its communicator while the others call
  kCut,     // the network of the last node is down
};

const char* NameOf(FaultKind kind);

// What the ranks are at: a collective by its name, or one of the others.
const std::vector<std::string>& Phases();

struct Scope {
  int nodes = 1;
  int most_ranks = 8;
  std::vector<FaultKind> kinds;
  std::vector<std::string> phases;
};

struct Fault {
  uint64_t seed = 0;
  FaultKind kind = FaultKind::kKill;
  std::string phase;
  int nodes = 1;
  int ranks = 2;
  int victim = 0;          // with kCut the first rank of the last node
  size_t count = 1;        // elements a block
  int64_t delay_us = 0;    // from the phase's begin to the fault
  bool warm = false;       // the processes have had another communicator before
  int64_t timeout_ms = 0;  // the deadline of calls
  int64_t bootstrap_timeout_ms = 0;  // and of making a communicator

  int NodeOf(int rank) const { return rank * nodes / ranks; }
  // Whether only a deadline ends the others' wait.
  bool IsByDeadline() const {
    return kind == FaultKind::kStop || kind == FaultKind::kStarve;
  }
  // Whether the rank isn't to tell of the fault.
  bool IsVictim(int rank) const {
    return kind != FaultKind::kCut && rank == victim;
  }
};

// Consecutive seeds go through all kinds and phases.
Fault DrawFault(uint64_t seed, const Scope& scope);

std::string Describe(const Fault& fault);

}  // namespace trnccl
