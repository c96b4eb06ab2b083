// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What the processes of a trial tell each other, in memory that all share.
//
//   board.ranks[2].stage.store(Stage::kDone);
//
// Thread rule: fields that aren't atomic are written by one process before it
// moves on to the stage from which others read them.
#pragma once

#include <atomic>
#include <cstdint>

#include "ccl/trnccl.h"

namespace trnccl {

enum class Stage {
  kStarting,
  kReady,    // for the phase in which the fault comes
  kNoticed,  // has its error, or has ended the phase without any
  kDone,     // has checked all that it can
};

struct Board {
  static constexpr int kMostRanks = 8;
  static constexpr int kIds = 2;

  std::atomic<bool> has_ids;
  trncclUniqueId ids[kIds];
  std::atomic<int> victim_pid;
  std::atomic<bool> go;           // the phase begins
  std::atomic<int64_t> fault_ns;  // when it came; 0: not yet
  std::atomic<bool> over;         // the victim goes on
  struct Rank {
    std::atomic<Stage> stage;
    std::atomic<int64_t> noticed_ns;  // 0: no error
    char at[64];                      // what it does, for the report of a hang
    char complaint[4096];             // the first; empty: all was as promised
    char error[2048];                 // what the library told it
  } ranks[kMostRanks];
};

}  // namespace trnccl
