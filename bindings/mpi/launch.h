// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Which process this is, of how many: from the environment that mpirun,
// a PMI launcher, torchrun, srun or Kubernetes gives (docs/launchers.md).
//
// Thread rule: pure, apart from reading the environment.
//
//   ASSIGN_OR_RETURN(Launch launch, FindLaunch(getenv));
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace trnccl::perf {

struct Launch {
  int process = 0;
  int processes = 1;
  bool by_mpi = false;  // MPI_Init will find the same processes
};

// Null for a variable that isn't set.
using Environment = absl::FunctionRef<const char*(const char*)>;

// One process alone if there's no launcher. InvalidArgument, naming the
// variable, if what it says makes no sense.
absl::StatusOr<Launch> FindLaunch(Environment environment);

// The group of a rank by nccl-tests' NCCL_TESTS_SPLIT ("AND", "OR", "MOD" or
// "DIV" and a number) or NCCL_TESTS_SPLIT_MASK: the benchmark then runs in all
// groups at once. 0 for every rank if neither is set.
absl::StatusOr<int> SplitGroup(Environment environment, int rank);

}  // namespace trnccl::perf
