// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/capi/handles.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"

trncclComm::Factor* trncclComm::FindFactor(trncclRedOp_t op) {
  if (op < trnccl::kFirstCustomOp) return nullptr;
  const auto index = static_cast<size_t>(op - trnccl::kFirstCustomOp);
  if (index >= factors.size() || !factors[index].used) return nullptr;
  return &factors[index];
}

namespace trnccl {
namespace {

std::string& ErrorText() {
  thread_local std::string text;
  return text;
}

}  // namespace

trncclResult_t ResultOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return trncclSuccess;
    case absl::StatusCode::kInvalidArgument:
      return trncclInvalidArgument;
    case absl::StatusCode::kFailedPrecondition:
      return trncclInvalidUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnauthenticated:
      return trncclRemoteError;
    case absl::StatusCode::kDeadlineExceeded:
      return trncclTimeout;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return trncclAborted;
    case absl::StatusCode::kResourceExhausted:
      return trncclOutOfResources;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnknown:
      return trncclSystemError;
    default:
      return trncclInternalError;
  }
}

trncclResult_t Returned(const absl::Status& status) {
  if (status.ok()) [[likely]]
    return trncclSuccess;
  ErrorText() = std::string(status.message());
  return ResultOf(status);
}

const std::string& LastErrorText() { return ErrorText(); }

absl::Status CheckProcess(int process_mark) {
  if (process_mark == ProcessMark()) [[likely]]
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the communicator was made before a fork: it's the parent's alone; make "
      "one in the child");
}

absl::StatusOr<Communicator*> Usable(trncclComm* comm) {
  if (comm == nullptr)
    return absl::InvalidArgumentError("the communicator is null");
  RETURN_IF_ERROR(CheckProcess(comm->process_mark));
  Communicator* communicator =
      comm->communicator.load(std::memory_order_acquire);
  if (communicator != nullptr) [[likely]]
    return communicator;
  if (comm->init_result.load() == trncclInProgress) {
    return absl::FailedPreconditionError(
        "the communicator's init is still in progress; "
        "trncclCommGetAsyncError tells when it's usable");
  }
  MutexLock lock(comm->mutex);
  return comm->init_status;
}

absl::Status BadCall(trncclComm* comm, std::string_view call,
                     std::string_view why) {
  ASSIGN_OR_RETURN(const Communicator* communicator, Usable(comm));
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", communicator->membership().rank, ": ",
                   std::string(call), ": ", std::string(why)));
}

absl::Status NullArgument(std::string_view call) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(call), ": an argument is null"));
}

}  // namespace trnccl
