// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// `trnccl tune`: measures this machine and gives a tuning file for
// TRNCCL_TUNING_FILE.
//
// Thread rule: from a process without other threads.
//
//   ASSIGN_OR_RETURN(TuneOptions options, ParseTuneFlags({"--quick"}));
//   ASSIGN_OR_RETURN(std::string text, Tune(options));
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trnccl::cli {

struct TuneOptions {
  std::string out;  // a path; empty: standard output
  int rounds = 15;
  int repeats = 400;  // of each measurement in a round
};

absl::StatusOr<TuneOptions> ParseTuneFlags(std::span<char* const> arguments);

// The file's text.
absl::StatusOr<std::string> Tune(const TuneOptions& options);

// All of the subcommand.
absl::Status RunTune(std::span<char* const> arguments);

}  // namespace trnccl::cli
