// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The collectives and point-to-point calls of the C interface: each turns its
// arguments into a call and issues it.
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "ccl/capi/handles.h"

namespace {

using trnccl::BlockCounts;
using trnccl::Collective;
using trnccl::CollectiveCall;
using trnccl::TypeOf;

const std::byte* Bytes(const void* pointer) {
  return static_cast<const std::byte*>(pointer);
}

std::byte* Bytes(void* pointer) { return static_cast<std::byte*>(pointer); }

// A count beyond int64 becomes negative, which the check refuses.
BlockCounts Even(size_t count) {
  return BlockCounts::Even(static_cast<int64_t>(count));
}

// size_t and int64_t may alias: they are the signed and unsigned of one type.
std::span<const int64_t> Array(const size_t* values, int ranks) {
  if (values == nullptr) return {};
  return {reinterpret_cast<const int64_t*>(values), static_cast<size_t>(ranks)};
}

CollectiveCall Call(Collective collective, const void* send, void* recv,
                    size_t count, trnccl::DataType type) {
  return {.collective = collective,
          .type = type,
          .input = Bytes(send),
          .output = Bytes(recv),
          .input_counts = Even(count),
          .output_counts = Even(count)};
}

// Whether the number stands for itself, and not for one of a communicator's
// own.
bool IsPlain(trncclRedOp_t op) {
  return op >= 0 && op < trnccl::kReduceOps &&
         op != static_cast<int>(trnccl::ReduceOp::kPremulSum);
}

// Looks up the operator's factor where it's one of the communicator's own.
absl::Status SetOperator(trncclComm* comm, trncclRedOp_t op,
                         CollectiveCall* call) {
  if (IsPlain(op)) {
    call->op = static_cast<trnccl::ReduceOp>(op);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(trnccl::Usable(comm).status());
  const auto bad = [&](const std::string& why) {
    return trnccl::BadCall(comm, Name(call->collective), why);
  };
  trnccl::MutexLock lock(comm->mutex);
  const trncclComm::Factor* factor = comm->FindFactor(op);
  if (factor == nullptr) {
    return bad(absl::StrCat("no operator has the number ", op,
                            " on this communicator (it may have been "
                            "destroyed)"));
  }
  const trnccl::DataType type = trnccl::TypeOf(factor->type);
  if (type != call->type) {
    return bad(absl::StrCat("operator ", op, " was made for ",
                            std::string(Name(type)), ", the call's type is ",
                            std::string(Name(call->type))));
  }
  call->op = trnccl::ReduceOp::kPremulSum;
  call->factor = factor->value;
  return absl::OkStatus();
}

trncclResult_t IssueReduction(trncclComm* comm, CollectiveCall call,
                              trncclRedOp_t op, trncclRequest_t* request) {
  const absl::Status status = SetOperator(comm, op, &call);
  if (!status.ok()) return trnccl::RefuseCollective(comm, status);
  return trnccl::IssueCollective(comm, call, request);
}

// A call whose blocks are all alike.
struct EvenCall {
  Collective collective;
  const void* send;
  void* recv;
  size_t count;
  trnccl::DataType type;
  trncclRedOp_t op = trncclSum;
  int root = 0;
};

trncclResult_t IssueAnew(const EvenCall& even, trncclComm* comm,
                         trncclRequest_t* request) {
  CollectiveCall call =
      Call(even.collective, even.send, even.recv, even.count, even.type);
  call.root = even.root;
  return IssueReduction(comm, call, even.op, request);
}

[[gnu::always_inline]] inline trncclResult_t IssueEven(
    const EvenCall& even, trncclComm* comm, trncclRequest_t* request) {
  if (request == nullptr && IsPlain(even.op)) {
    const trnccl::CallShape shape{even.collective, even.type,
                                  static_cast<trnccl::ReduceOp>(even.op),
                                  even.root};
    const std::optional<trncclResult_t> result =
        trnccl::RunShort(comm, {.what = shape.Word(), .count = even.count},
                         {Bytes(even.send), Bytes(even.recv)});
    if (result.has_value()) return *result;
  }
  return IssueAnew(even, comm, request);
}

// Of a usable communicator, else 0.
int RanksOf(trncclComm* comm) {
  const auto communicator = trnccl::Usable(comm);
  return communicator.ok() ? (*communicator)->membership().ranks : 0;
}

trncclResult_t RefuseNullCounts(trncclComm* comm, Collective collective) {
  return trnccl::RefuseCollective(
      comm,
      trnccl::BadCall(comm, Name(collective), "an array of counts is null"));
}

// What's too much becomes more than any check takes.
size_t BytesOf(size_t count, trnccl::DataType type) {
  size_t bytes = 0;
  return __builtin_mul_overflow(count, ElementBytes(type), &bytes) ? SIZE_MAX
                                                                   : bytes;
}

}  // namespace

extern "C" {

trncclResult_t trncclAllReduce(const void* send, void* recv, size_t count,
                               trncclDataType_t type, trncclRedOp_t op,
                               trncclComm_t comm, trncclRequest_t* request) {
  return IssueEven(
      {Collective::kAllReduce, send, recv, count, TypeOf(type), op}, comm,
      request);
}

trncclResult_t trncclBroadcast(const void* send, void* recv, size_t count,
                               trncclDataType_t type, int root,
                               trncclComm_t comm, trncclRequest_t* request) {
  return IssueEven({.collective = Collective::kBroadcast,
                    .send = send,
                    .recv = recv,
                    .count = count,
                    .type = TypeOf(type),
                    .root = root},
                   comm, request);
}

trncclResult_t trncclReduce(const void* send, void* recv, size_t count,
                            trncclDataType_t type, trncclRedOp_t op, int root,
                            trncclComm_t comm, trncclRequest_t* request) {
  return IssueEven(
      {Collective::kReduce, send, recv, count, TypeOf(type), op, root}, comm,
      request);
}

trncclResult_t trncclAllGather(const void* send, void* recv, size_t sendcount,
                               trncclDataType_t type, trncclComm_t comm,
                               trncclRequest_t* request) {
  return IssueEven(
      {Collective::kAllGather, send, recv, sendcount, TypeOf(type)}, comm,
      request);
}

trncclResult_t trncclAllGatherV(const void* send, void* recv,
                                const size_t* recvcounts,
                                const size_t* displacements,
                                trncclDataType_t type, trncclComm_t comm,
                                trncclRequest_t* request) {
  if (recvcounts == nullptr)
    return RefuseNullCounts(comm, Collective::kAllGatherV);
  const int ranks = RanksOf(comm);
  CollectiveCall call =
      Call(Collective::kAllGatherV, send, recv, 0, TypeOf(type));
  if (ranks > 0) {
    int rank = 0;
    trncclCommUserRank(comm, &rank);
    call.input_counts = Even(recvcounts[rank]);
    call.output_counts = {.counts = Array(recvcounts, ranks),
                          .offsets = Array(displacements, ranks)};
  }
  return trnccl::IssueCollective(comm, call, request);
}

trncclResult_t trncclReduceScatter(const void* send, void* recv,
                                   size_t recvcount, trncclDataType_t type,
                                   trncclRedOp_t op, trncclComm_t comm,
                                   trncclRequest_t* request) {
  return IssueEven(
      {Collective::kReduceScatter, send, recv, recvcount, TypeOf(type), op},
      comm, request);
}

trncclResult_t trncclReduceScatterV(const void* send, void* recv,
                                    const size_t* sendcounts,
                                    trncclDataType_t type, trncclRedOp_t op,
                                    trncclComm_t comm,
                                    trncclRequest_t* request) {
  if (sendcounts == nullptr)
    return RefuseNullCounts(comm, Collective::kReduceScatterV);
  const int ranks = RanksOf(comm);
  CollectiveCall call =
      Call(Collective::kReduceScatterV, send, recv, 0, TypeOf(type));
  if (ranks > 0) {
    int rank = 0;
    trncclCommUserRank(comm, &rank);
    call.input_counts = {.counts = Array(sendcounts, ranks)};
    call.output_counts = Even(sendcounts[rank]);
  }
  return IssueReduction(comm, call, op, request);
}

trncclResult_t trncclAllToAll(const void* send, void* recv, size_t count,
                              trncclDataType_t type, trncclComm_t comm,
                              trncclRequest_t* request) {
  return IssueEven({Collective::kAllToAll, send, recv, count, TypeOf(type)},
                   comm, request);
}

trncclResult_t trncclAllToAllV(const void* send, const size_t* sendcounts,
                               const size_t* senddispls, void* recv,
                               const size_t* recvcounts,
                               const size_t* recvdispls, trncclDataType_t type,
                               trncclComm_t comm, trncclRequest_t* request) {
  if (sendcounts == nullptr || recvcounts == nullptr)
    return RefuseNullCounts(comm, Collective::kAllToAllV);
  const int ranks = RanksOf(comm);
  CollectiveCall call =
      Call(Collective::kAllToAllV, send, recv, 0, TypeOf(type));
  call.input_counts = {.counts = Array(sendcounts, ranks),
                       .offsets = Array(senddispls, ranks)};
  call.output_counts = {.counts = Array(recvcounts, ranks),
                        .offsets = Array(recvdispls, ranks)};
  return trnccl::IssueCollective(comm, call, request);
}

trncclResult_t trncclGather(const void* send, void* recv, size_t sendcount,
                            trncclDataType_t type, int root, trncclComm_t comm,
                            trncclRequest_t* request) {
  return IssueEven({.collective = Collective::kGather,
                    .send = send,
                    .recv = recv,
                    .count = sendcount,
                    .type = TypeOf(type),
                    .root = root},
                   comm, request);
}

trncclResult_t trncclScatter(const void* send, void* recv, size_t recvcount,
                             trncclDataType_t type, int root, trncclComm_t comm,
                             trncclRequest_t* request) {
  return IssueEven({.collective = Collective::kScatter,
                    .send = send,
                    .recv = recv,
                    .count = recvcount,
                    .type = TypeOf(type),
                    .root = root},
                   comm, request);
}

trncclResult_t trncclBarrier(trncclComm_t comm, trncclRequest_t* request) {
  return IssueEven(
      {Collective::kBarrier, nullptr, nullptr, 0, trnccl::DataType::kInt8},
      comm, request);
}

trncclResult_t trncclSend(const void* send, size_t count, trncclDataType_t type,
                          int peer, int64_t tag, trncclComm_t comm,
                          trncclRequest_t* request) {
  trnccl::Transfer transfer{.direction = trnccl::Transfer::kSend,
                            .type = TypeOf(type),
                            .peer = peer,
                            .tag = tag,
                            // Sends only read it.
                            .buffer = const_cast<std::byte*>(Bytes(send)),
                            .bytes = BytesOf(count, TypeOf(type))};
  return trnccl::IssueTransfer(comm, transfer, nullptr, request);
}

trncclResult_t trncclRecv(void* recv, size_t count, trncclDataType_t type,
                          int peer, int64_t tag, trncclStatus_t* status,
                          trncclComm_t comm, trncclRequest_t* request) {
  trnccl::Transfer transfer{.direction = trnccl::Transfer::kReceive,
                            .type = TypeOf(type),
                            .peer = peer,
                            .tag = tag,
                            .buffer = Bytes(recv),
                            .bytes = BytesOf(count, TypeOf(type))};
  return trnccl::IssueTransfer(comm, transfer, status, request);
}

}  // extern "C"
