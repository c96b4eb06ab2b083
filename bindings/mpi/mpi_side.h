// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// MPI seen from the benchmarks: starting and ending it, its names for our types
// and operators, and a team of ranks that it carries. MPI's own errors end the
// program, as its default error handler does.
//
// Thread rule: call from the main thread.
//
//   RETURN_IF_ERROR(StartMpi(launch));
//   if (IsComparable({type, op})) ... MpiType(type), MpiOperator({type, op})
//   ... FinishMpi();
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "bindings/mpi/flags.h"
#include "bindings/mpi/launch.h"
#include "bindings/mpi/team.h"
#include "ccl/trnccl.h"

namespace trnccl::perf {

// InvalidArgument if MPI sees other processes than the launcher's environment
// says: it's then another MPI's launcher.
absl::Status StartMpi(const Launch& launch);

// Does nothing if MPI hasn't been started.
void FinishMpi();

// Ends all processes of the job that MPI knows of, this one at least.
[[noreturn]] void AbortAll(int exit_code);

// Process 0 gives, the others get.
void BroadcastFromFirst(void* data, size_t bytes);

// The ranks of this rank's group; MPI_COMM_WORLD stays as it is.
MPI_Comm SplitMpi(int group, int rank);

std::unique_ptr<Team> MakeMpiTeam();

// MPI has no 8- and 16-bit floats, and no average or premultiplied sum.
bool IsComparable(const Kind& kind);
MPI_Datatype MpiType(trncclDataType_t type);  // or MPI_DATATYPE_NULL
MPI_Op MpiOperator(const Kind& kind);         // or MPI_OP_NULL

}  // namespace trnccl::perf
