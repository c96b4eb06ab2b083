// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Where a communicator hangs, in sentences: who is stopped, missing or behind,
// who makes another call than the rest, and what all others wait in.
//
// Thread rule: pure.
//
//   for (const Finding& finding : Diagnose(communicator)) Say(finding.text);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/cli/job.h"

namespace trnccl::cli {

struct Finding {
  // "failed", "stopped", "missing", "mismatch", "behind", "message"; and where
  // nobody is behind, "together" in a call, or "idle" between two.
  std::string_view kind;
  std::vector<int> ranks;  // of whom it tells
  std::string text;
};

// What hinders most comes first. One of the last two kinds, or "behind", is
// there if there's any member.
std::vector<Finding> Diagnose(const JobCommunicator& communicator);

// "4 MiB", "31 s", "ranks 0, 2"
std::string BytesText(uint64_t bytes);
std::string AgeText(int64_t ns);
std::string RanksText(const std::vector<int>& ranks);

// How long the call had been going on when it was looked at, or took.
int64_t AgeNs(const JobCall& call, const Member& member);
// "all_reduce of 4 MiB"
std::string CallText(const JobCall& call);
// "is at call 812 all_reduce of 4 MiB for 31 s"
std::string PlaceText(const Member& member);

}  // namespace trnccl::cli
