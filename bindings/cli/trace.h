// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// `trnccl trace`: the dumps of all ranks of a job, as one answer.
//
// Thread rule: reads files; thread-safe.
//
//   ASSIGN_OR_RETURN(const Job job, ReadDumps({"/tmp/job"}));
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bindings/cli/job.h"

namespace trnccl::cli {

struct TraceOptions {
  bool json = false;
  std::string chrome;  // where a trace goes; empty: none is wanted
  std::vector<std::string> paths;
};

absl::StatusOr<TraceOptions> ParseTraceFlags(std::span<char* const> arguments);

// Files, and all of folders. A file that was named must be a dump; what else
// lies in a folder is listed as unread.
absl::StatusOr<Job> ReadDumps(const std::vector<std::string>& paths);

// All of the subcommand.
absl::Status RunTrace(std::span<char* const> arguments);

}  // namespace trnccl::cli
