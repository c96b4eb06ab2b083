// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// `trnccl status`: where the live jobs of this machine are.
//
// Thread rule: reads /proc; thread-safe.
//
//   RETURN_IF_ERROR(RunStatus(arguments));
#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trnccl::cli {

struct StatusOptions {
  bool json = false;
  std::vector<pid_t> pids;  // empty: all
};

absl::StatusOr<StatusOptions> ParseStatusFlags(
    std::span<char* const> arguments);

// All of the subcommand.
absl::Status RunStatus(std::span<char* const> arguments);

}  // namespace trnccl::cli
