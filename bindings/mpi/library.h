// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The library seen from the benchmarks: its results as absl::Status, with the
// text of the error, and a team of ranks that it carries itself, where MPI
// can't.
//
// Thread rule: an object belongs to one rank, that is one thread.
//
//   RETURN_IF_ERROR(FromLibrary(trncclBarrier(comm, nullptr), {"barrier",
//   comm}));
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "bindings/mpi/team.h"
#include "ccl/trnccl.h"

namespace trnccl::perf {

struct LibraryCall {
  const char* name;
  trncclComm_t comm = nullptr;  // null: before there's one
};

// DeadlineExceeded for trncclTimeout, Unavailable for all other failures; the
// text is trncclGetLastError's.
absl::Status LibraryError(trncclResult_t result, const LibraryCall& call);

inline absl::Status FromLibrary(trncclResult_t result,
                                const LibraryCall& call) {
  if (result == trncclSuccess) [[likely]]
    return absl::OkStatus();
  return LibraryError(result, call);
}

// `comm` must outlive the team.
absl::StatusOr<std::unique_ptr<Team>> MakeLibraryTeam(trncclComm_t comm);

}  // namespace trnccl::perf
