// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Calls on their way from the C interface to their communicator: at once,
// asynchronously, or with the group that the thread has open.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "ccl/capi/handles.h"

namespace trnccl {

// Apart from the groups themselves, since every call asks.
constinit thread_local int group_depth = 0;

namespace {

struct GroupedCall {
  Communicator* communicator = nullptr;
  // Without a request it's the group's own; with one, a reference is.
  Operation* operation = nullptr;
  trncclRequest_t* request = nullptr;
};

struct Group {
  absl::Status refused;  // the first refusal
  std::vector<GroupedCall> calls;
  std::vector<Operation*> blocking;  // of the same, where none has a request
};

Group& ThreadGroup() {
  thread_local Group group;
  return group;
}

bool InGroup() { return group_depth > 0; }

// Hands an operation that was made by `new` to the group or the communicator.
trncclResult_t Start(Communicator* communicator, Operation* operation,
                     trncclRequest_t* request) {
  operation->on_heap = request != nullptr;
  // As it's now, whichever thread takes it up later.
  operation->timeout_ms = communicator->timeout_ms();
  if (InGroup()) {
    if (request != nullptr) *request = nullptr;
    ThreadGroup().calls.push_back({communicator, operation, request});
    return trncclSuccess;
  }
  const absl::Status status = communicator->Submit({&operation, 1});
  if (!status.ok()) {
    operation->Release();
    return Returned(status);
  }
  *request = new trncclRequest{operation, communicator};
  return trncclSuccess;
}

// One submission for each communicator, in the calls' order. Calls that it
// doesn't take are done with its error.
void SubmitAll(const std::vector<GroupedCall>& calls) {
  std::vector<Communicator*> seen;
  for (const GroupedCall& first : calls) {
    if (std::find(seen.begin(), seen.end(), first.communicator) != seen.end())
      continue;
    seen.push_back(first.communicator);
    std::vector<Operation*> operations;
    for (const GroupedCall& call : calls)
      if (call.communicator == first.communicator)
        operations.push_back(call.operation);
    const absl::Status status = first.communicator->Submit(operations);
    if (status.ok()) continue;
    for (Operation* operation : operations) {
      operation->status = status;
      operation->done.store(true);
      operation->TakeNotice();
    }
  }
}

// What keeps the group from starting: a refused call, a failed communicator.
absl::Status RefusalOf(const std::vector<GroupedCall>& calls,
                       const absl::Status& refused) {
  RETURN_IF_ERROR(refused);
  for (const GroupedCall& call : calls)
    RETURN_IF_ERROR(call.communicator->failure());
  return absl::OkStatus();
}

// Whether all are blocking and of one communicator: then this thread does what
// they need itself.
bool RunsAtOnce(const std::vector<GroupedCall>& calls) {
  return !calls.empty() &&
         std::all_of(calls.begin(), calls.end(), [&](const GroupedCall& call) {
           return call.request == nullptr &&
                  call.communicator == calls.front().communicator;
         });
}

absl::Status RunAtOnce(Group* group) {
  group->blocking.clear();
  for (const GroupedCall& call : group->calls)
    group->blocking.push_back(call.operation);
  const absl::Status status =
      group->calls.front().communicator->RunAll(group->blocking);
  for (Operation* operation : group->blocking) delete operation;
  return status;
}

// Nothing is wrong with it, but peers may wait for it all the same.
void AnnounceWithGroup(const GroupedCall& call, const absl::Status& refused) {
  const Operation& operation = *call.operation;
  if (operation.kind == Operation::Kind::kCollective) {
    call.communicator->AnnounceRefusal(refused);
    return;
  }
  call.communicator->AnnounceRefusal(
      operation.transfer, absl::InvalidArgumentError(absl::StrCat(
                              "rank ", call.communicator->membership().rank,
                              ": ", TransferText(operation.transfer),
                              ": its group was refused: ", refused.message())));
}

absl::Status RunGroup(Group* group) {
  const std::vector<GroupedCall>& calls = group->calls;
  absl::Status status = std::exchange(group->refused, absl::OkStatus());
  if (status.ok() && RunsAtOnce(calls)) return RunAtOnce(group);
  status = RefusalOf(calls, status);
  if (!status.ok()) {
    for (const GroupedCall& call : calls) {
      AnnounceWithGroup(call, status);
      call.operation->Release();
    }
    return status;
  }
  SubmitAll(calls);
  for (const GroupedCall& call : calls) {
    if (call.request != nullptr) {
      *call.request = new trncclRequest{call.operation, call.communicator};
      continue;
    }
    call.communicator->Wait(call.operation, Communicator::kForever);
    status.Update(call.operation->status);
    call.operation->Release();
  }
  return status;
}

absl::Status EndGroup(Group* group) {
  absl::Status status = RunGroup(group);
  group->calls.clear();
  return status;
}

}  // namespace

trncclResult_t Refuse(const absl::Status& status) {
  if (InGroup() && ThreadGroup().refused.ok()) ThreadGroup().refused = status;
  return Returned(status);
}

trncclResult_t RefuseCollective(trncclComm* comm, const absl::Status& status) {
  const absl::StatusOr<Communicator*> communicator = Usable(comm);
  if (communicator.ok()) (*communicator)->AnnounceRefusal(status);
  return Refuse(status);
}

trncclResult_t IssueCollective(trncclComm* comm, const CollectiveCall& call,
                               trncclRequest_t* request) {
  const absl::StatusOr<Communicator*> communicator = Usable(comm);
  if (!communicator.ok()) return Refuse(communicator.status());
  const absl::Status checked = (*communicator)->Check(call);
  if (!checked.ok()) return RefuseCollective(comm, checked);
  if (request == nullptr && !InGroup()) {
    Operation operation;
    operation.call = call;
    return Returned((*communicator)->Run(&operation));
  }
  auto* operation = new Operation;
  operation->call = call;
  operation->OwnCounts();
  return Start(*communicator, operation, request);
}

trncclResult_t IssueTransfer(trncclComm* comm, const Transfer& transfer,
                             trncclStatus_t* status, trncclRequest_t* request) {
  static_assert(sizeof(ReceiveStatus) == sizeof(trncclStatus_t) &&
                offsetof(ReceiveStatus, tag) == offsetof(trncclStatus_t, tag) &&
                offsetof(ReceiveStatus, count) ==
                    offsetof(trncclStatus_t, count));
  const absl::StatusOr<Communicator*> communicator = Usable(comm);
  if (!communicator.ok()) return Refuse(communicator.status());
  const absl::Status checked =
      CheckTransfer(transfer, (*communicator)->membership());
  if (!checked.ok()) {
    (*communicator)->AnnounceRefusal(transfer, checked);
    return Refuse(checked);
  }
  const auto fill = [&](Operation* operation) {
    operation->kind = Operation::Kind::kTransfer;
    operation->transfer = transfer;
    operation->receive_status = reinterpret_cast<ReceiveStatus*>(status);
  };
  if (request == nullptr && !InGroup()) {
    Operation operation;
    fill(&operation);
    return Returned((*communicator)->Run(&operation));
  }
  auto* operation = new Operation;
  fill(operation);
  return Start(*communicator, operation, request);
}

}  // namespace trnccl

extern "C" {

trncclResult_t trncclGroupStart(void) {
  ++trnccl::group_depth;
  return trncclSuccess;
}

trncclResult_t trncclGroupEnd(void) {
  if (trnccl::group_depth == 0) {
    return trnccl::Returned(absl::FailedPreconditionError(
        "trncclGroupEnd without trncclGroupStart in this thread"));
  }
  if (--trnccl::group_depth > 0) return trncclSuccess;
  return trnccl::Returned(trnccl::EndGroup(&trnccl::ThreadGroup()));
}

trncclResult_t trncclRequestTest(trncclRequest_t request, int* done) {
  if (request == nullptr || done == nullptr) {
    return trnccl::Returned(absl::InvalidArgumentError(
        "trncclRequestTest: the request or the result is null"));
  }
  const absl::Status ours = trnccl::CheckProcess(request->process_mark);
  if (!ours.ok()) return trnccl::Returned(ours);
  *done = request->operation->done.load(std::memory_order_acquire) ? 1 : 0;
  return *done != 0 ? trnccl::Returned(request->operation->status)
                    : trncclSuccess;
}

trncclResult_t trncclRequestWait(trncclRequest_t request, int64_t patience_ms) {
  if (request == nullptr) {
    return trnccl::Returned(
        absl::InvalidArgumentError("trncclRequestWait: the request is null"));
  }
  const absl::Status ours = trnccl::CheckProcess(request->process_mark);
  if (!ours.ok()) return trnccl::Returned(ours);
  trnccl::Operation* operation = request->operation;
  const bool done = operation->done.load(std::memory_order_acquire) ||
                    request->communicator->Wait(operation, patience_ms);
  return done ? trnccl::Returned(operation->status) : trncclInProgress;
}

trncclResult_t trncclRequestNotify(trncclRequest_t request,
                                   void (*notify)(void*), void* context) {
  if (request == nullptr || notify == nullptr) {
    return trnccl::Returned(absl::InvalidArgumentError(
        "trncclRequestNotify: the request or the function is null"));
  }
  const absl::Status ours = trnccl::CheckProcess(request->process_mark);
  if (!ours.ok()) return trnccl::Returned(ours);
  auto notice = std::make_unique<trnccl::Notice>(
      trnccl::Notice{.notify = notify, .context = context});
  if (request->operation->SetNotice(notice.get())) {
    notice.release();
    return trncclSuccess;
  }
  if (!request->operation->done.load(std::memory_order_acquire)) {
    return trnccl::Returned(absl::FailedPreconditionError(
        "trncclRequestNotify: the request has a notice already"));
  }
  notify(context);
  return trncclSuccess;
}

trncclResult_t trncclRequestFree(trncclRequest_t request) {
  if (request == nullptr) {
    return trnccl::Returned(
        absl::InvalidArgumentError("trncclRequestFree: the request is null"));
  }
  request->operation->Release();
  delete request;
  return trncclSuccess;
}

}  // extern "C"
