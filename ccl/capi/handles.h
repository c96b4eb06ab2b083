// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What stands behind the C interface's handles, and how errors cross the
// border: absl::Status inside, result codes and a kept text outside.
//
// Thread rule: the functions are thread-safe; the handles follow trnccl.h.
//
//   return Returned(communicator.Run(&operation));
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/mutex.h"
#include "ccl/communicator/communicator.h"
#include "ccl/communicator/operation.h"
#include "ccl/progress/process_mark.h"
#include "ccl/trnccl.h"

struct trncclComm {
  // While it's being made by a non-blocking init, null and trncclInProgress.
  std::atomic<trnccl::Communicator*> communicator = nullptr;
  std::unique_ptr<trnccl::Communicator> owned;
  std::atomic<trncclResult_t> init_result = trncclInProgress;
  std::atomic<bool> abort_init = false;
  std::thread init_thread;
  int process_mark = 0;

  trnccl::Mutex mutex;
  absl::Status init_status ABSL_GUARDED_BY(mutex);
  // Factors of premultiplied sums, by operator - kFirstCustomOp.
  struct Factor {
    trncclDataType_t type = trncclFloat32;
    bool used = false;
    trnccl::PremulFactor value;
  };
  std::vector<Factor> factors ABSL_GUARDED_BY(mutex);
  // Of an operator that was made and not destroyed, else null.
  Factor* FindFactor(trncclRedOp_t op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
};

struct trncclRequest {
  trnccl::Operation* operation = nullptr;
  trnccl::Communicator* communicator = nullptr;  // looked at until it's done
  int process_mark = trnccl::ProcessMark();
};

namespace trnccl {

inline constexpr trncclRedOp_t kFirstCustomOp = 64;

// Keeps the text for trncclGetLastError() of this thread.
trncclResult_t Returned(const absl::Status& status);
trncclResult_t ResultOf(const absl::Status& status);
const std::string& LastErrorText();

// Returned() of a call that's refused: the thread's open group, if there's one,
// is refused with it.
trncclResult_t Refuse(const absl::Status& status);
// The same for a collective, and tells the communicator's other ranks, if it's
// usable.
trncclResult_t RefuseCollective(trncclComm* comm, const absl::Status& status);

// The type, or one that every check refuses.
inline DataType TypeOf(trncclDataType_t type) {
  const auto number = static_cast<int64_t>(type);
  return static_cast<DataType>(number >= 0 && number < kDataTypes ? number
                                                                  : UINT8_MAX);
}

// The communicator if calls may be made on it now, in this process: not during
// init, not after a fork.
absl::StatusOr<Communicator*> Usable(trncclComm* comm);

// InvalidArgument that names this rank and the call; or why `comm` isn't usable
// in the first place.
absl::Status BadCall(trncclComm* comm, std::string_view call,
                     std::string_view why);

// FailedPrecondition in a child of the process that made the handle.
absl::Status CheckProcess(int process_mark);

// How many groups the thread has open.
extern constinit thread_local int group_depth;

// Runs a blocking call at once if it's a small one as made before; nothing if
// it must be issued.
inline std::optional<trncclResult_t> RunShort(trncclComm* comm,
                                              const ShortKey& key,
                                              const CallBuffers& buffers) {
  if (comm == nullptr || comm->process_mark != ProcessMark() || group_depth > 0)
    return std::nullopt;
  Communicator* communicator =
      comm->communicator.load(std::memory_order_acquire);
  if (communicator == nullptr) return std::nullopt;
  absl::Status status;
  if (!communicator->RunShort(key, buffers, &status)) return std::nullopt;
  if (status.ok()) [[likely]]
    return trncclSuccess;
  return Returned(status);
}

// Checks a call, then runs it, starts it, or leaves it to the open group, as
// request and thread say.
trncclResult_t IssueCollective(trncclComm* comm, const CollectiveCall& call,
                               trncclRequest_t* request);
trncclResult_t IssueTransfer(trncclComm* comm, const Transfer& transfer,
                             trncclStatus_t* status, trncclRequest_t* request);

// What a function that was given none gets.
absl::Status NullArgument(std::string_view call);

}  // namespace trnccl
