// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/library.h"

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"

namespace trnccl::perf {
namespace {

class LibraryTeam : public Team {
 public:
  LibraryTeam(const trncclCommInfo_t& info, trncclComm_t comm)
      : Team(info.rank, info.ranks), comm_(comm) {}

  absl::Status Barrier() override {
    return FromLibrary(trncclBarrier(comm_, nullptr), {"Barrier", comm_});
  }

  absl::Status GatherBytes(const void* mine, size_t bytes, void* all) override {
    return FromLibrary(
        trncclAllGather(mine, all, bytes, trncclUint8, comm_, nullptr),
        {"AllGather", comm_});
  }

 private:
  trncclComm_t comm_;
};

}  // namespace

absl::Status LibraryError(trncclResult_t result, const LibraryCall& call) {
  std::string text = trncclGetLastError(call.comm);
  // What was refused before it reached the communicator is the thread's.
  if (text.empty()) text = trncclGetLastError(nullptr);
  const std::string message = absl::StrCat(
      "trnccl", call.name, ": ", trncclGetErrorString(result), ": ", text);
  if (result == trncclTimeout) return absl::DeadlineExceededError(message);
  return absl::UnavailableError(message);
}

absl::StatusOr<std::unique_ptr<Team>> MakeLibraryTeam(trncclComm_t comm) {
  trncclCommInfo_t info = {};
  RETURN_IF_ERROR(FromLibrary(trncclCommInfo(comm, &info), {"CommInfo", comm}));
  return std::make_unique<LibraryTeam>(info, comm);
}

}  // namespace trnccl::perf
