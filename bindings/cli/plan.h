// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// `trnccl plan`: what a communicator of some ranks on this machine, or on nodes
// like it, would choose for each size of a call, and what it takes that to
// cost. Nothing runs.
//
// Thread rule: pure, apart from reading the environment and this machine.
//
//   ASSIGN_OR_RETURN(PlanOptions options, ParsePlanFlags(arguments));
//   ASSIGN_OR_RETURN(std::string table, PlanTable(options, settings));
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/settings.h"
#include "ccl/base/types.h"

namespace trnccl::cli {

struct PlanOptions {
  int ranks = 2;
  int nodes = 1;
  Collective collective = Collective::kAllReduce;
};

absl::StatusOr<PlanOptions> ParsePlanFlags(std::span<char* const> arguments);

// float32. The bytes are those of the larger of a rank's two buffers.
absl::StatusOr<std::string> PlanTable(const PlanOptions& options,
                                      const Settings& settings);

// All of the subcommand.
absl::Status RunPlan(std::span<char* const> arguments);

}  // namespace trnccl::cli
