// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The rest of the C interface: the library, communicators, operators, memory.
#include <unistd.h>

#include <climits>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/log.h"
#include "ccl/base/settings.h"
#include "ccl/base/status_macros.h"
#include "ccl/bootstrap/unique_id.h"
#include "ccl/capi/handles.h"
#include "ccl/communicator/create.h"
#include "transports/shared_memory.h"

namespace trnccl {
namespace {

template <typename Element>
Element Load(const void* from) {
  Element element;
  std::memcpy(&element, from, sizeof(element));
  return element;
}

// For a caller, who gives it to trncclFreeText.
char* CopyOf(const std::string& text) {
  char* copy = new char[text.size() + 1];
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

// The factor of a premultiplied sum, from one element of the type.
absl::StatusOr<PremulFactor> FactorOf(const void* from, DataType type) {
  const absl::StatusOr<Folder> folder =
      MakeFolder({.type = type, .op = ReduceOp::kPremulSum});
  if (!folder.ok()) return folder.status();
  switch (type) {
    case DataType::kFloat32:
      return PremulFactor{.real = Load<float>(from)};
    case DataType::kFloat64:
      return PremulFactor{.real = Load<double>(from)};
    case DataType::kComplex64:
      return PremulFactor{
          .real = Load<float>(from),
          .imaginary = Load<float>(static_cast<const float*>(from) + 1)};
    case DataType::kComplex128:
      return PremulFactor{
          .real = Load<double>(from),
          .imaginary = Load<double>(static_cast<const double*>(from) + 1)};
    case DataType::kInt8:
      return PremulFactor{.integer = Load<int8_t>(from)};
    case DataType::kUint8:
      return PremulFactor{.integer = Load<uint8_t>(from)};
    case DataType::kInt16:
      return PremulFactor{.integer = Load<int16_t>(from)};
    case DataType::kUint16:
      return PremulFactor{.integer = Load<uint16_t>(from)};
    case DataType::kInt32:
      return PremulFactor{.integer = Load<int32_t>(from)};
    case DataType::kUint32:
      return PremulFactor{.integer = Load<uint32_t>(from)};
    case DataType::kInt64:
    case DataType::kUint64:
      return PremulFactor{.integer = Load<int64_t>(from)};
    default:
      break;
  }
  // Narrow floats: a copy of one element to its wide form.
  ASSIGN_OR_RETURN(const Folder widen,
                   MakeFolder({.type = type, .op = ReduceOp::kSum}));
  float wide = 1;
  const FoldOperand operands[] = {{.data = from}};
  void* const results[] = {&wide};
  widen.Fold({.operands = operands,
              .results = results,
              .count = 1,
              .wide_result = true});
  return PremulFactor{.real = wide};
}

absl::StatusOr<trncclRedOp_t> AddOperator(trncclComm* comm, const void* factor,
                                          trncclDataType_t type) {
  constexpr std::string_view kCall = "trncclRedOpCreatePreMulSum";
  RETURN_IF_ERROR(Usable(comm).status());
  if (ElementBytes(TypeOf(type)) == 0)
    return BadCall(comm, kCall, "unknown data type");
  const absl::StatusOr<PremulFactor> value = FactorOf(factor, TypeOf(type));
  if (!value.ok())
    return BadCall(comm, kCall, std::string(value.status().message()));
  MutexLock lock(comm->mutex);
  size_t index = 0;
  while (index < comm->factors.size() && comm->factors[index].used) ++index;
  if (index == comm->factors.size()) comm->factors.emplace_back();
  comm->factors[index] = {.type = type, .used = true, .value = *value};
  return kFirstCustomOp + static_cast<trncclRedOp_t>(index);
}

absl::Status RemoveOperator(trncclComm* comm, trncclRedOp_t op) {
  RETURN_IF_ERROR(Usable(comm).status());
  MutexLock lock(comm->mutex);
  trncclComm::Factor* factor = comm->FindFactor(op);
  if (factor == nullptr) {
    return BadCall(comm, "trncclRedOpDestroy",
                   absl::StrCat("no operator has the number ", op));
  }
  factor->used = false;
  return absl::OkStatus();
}

// For calls that tell of a rank, what's written to `result`.
absl::StatusOr<Communicator*> AskedAbout(trncclComm* comm, int rank,
                                         const void* result,
                                         std::string_view call) {
  ASSIGN_OR_RETURN(Communicator * communicator, Usable(comm));
  if (result == nullptr) return NullArgument(call);
  const int ranks = communicator->membership().ranks;
  if (rank >= 0 && rank < ranks) return communicator;
  return absl::InvalidArgumentError(absl::StrCat(
      std::string(call), ": there is no rank ", rank, " of ", ranks));
}

trncclRankState_t StateOf(const Communicator::Fate& fate) {
  switch (fate.kind) {
    case Communicator::Fate::Kind::kPresent:
      return trncclRankPresent;
    case Communicator::Fate::Kind::kLeft:
      return trncclRankLeft;
    case Communicator::Fate::Kind::kLost:
      break;
  }
  return trncclRankLost;
}

// The communicator's own error, or why there's none yet.
absl::Status FailureOf(trncclComm* comm) {
  RETURN_IF_ERROR(CheckProcess(comm->process_mark));
  const Communicator* communicator = comm->communicator.load();
  if (communicator != nullptr) return communicator->failure();
  MutexLock lock(comm->mutex);
  return comm->init_status;
}

// In a forked child the handle stays as it is: its descriptors and threads are
// the parent's.
absl::Status Destroy(trncclComm* comm) {
  RETURN_IF_ERROR(CheckProcess(comm->process_mark));
  if (comm->init_thread.joinable()) {
    comm->abort_init.store(true);
    comm->init_thread.join();
  }
  delete comm;
  return absl::OkStatus();
}

absl::Status Abort(trncclComm* comm) {
  RETURN_IF_ERROR(CheckProcess(comm->process_mark));
  comm->abort_init.store(true);
  if (Communicator* communicator = comm->communicator.load())
    communicator->Abort();
  return absl::OkStatus();
}

trncclResult_t AnnounceRefused(trncclComm* comm, const Transfer& transfer,
                               const char* reason) {
  const absl::StatusOr<Communicator*> usable = Usable(comm);
  if (!usable.ok()) return Returned(usable.status());
  const bool sends = transfer.direction == Transfer::kSend;
  if (reason == nullptr)
    return Returned(NullArgument(sends ? "trncclCommAnnounceRefusedSend"
                                       : "trncclCommAnnounceRefusedRecv"));
  (*usable)->AnnounceRefusal(
      transfer,
      absl::InvalidArgumentError(absl::StrCat(
          "rank ", (*usable)->membership().rank,
          sends ? ": send to " : ": receive from ",
          transfer.peer == kAnySource ? "any rank"
                                      : absl::StrCat("rank ", transfer.peer),
          transfer.tag == kAnyTag ? ", any tag: "
                                  : absl::StrCat(", tag ", transfer.tag, ": "),
          reason)));
  return trncclSuccess;
}

}  // namespace
}  // namespace trnccl

using trnccl::CopyOf;
using trnccl::NullArgument;
using trnccl::Returned;

extern "C" {

trncclResult_t trncclGetVersion(int* version) {
  if (version == nullptr) return Returned(NullArgument("trncclGetVersion"));
  *version = TRNCCL_VERSION;
  return trncclSuccess;
}

const char* trncclGetErrorString(trncclResult_t result) {
  switch (result) {
    case trncclSuccess:
      return "success";
    case trncclDeviceError:
      return "a device failed";
    case trncclSystemError:
      return "the operating system refused or failed";
    case trncclInternalError:
      return "internal error of trnccl";
    case trncclInvalidArgument:
      return "invalid argument";
    case trncclInvalidUsage:
      return "call at the wrong time";
    case trncclRemoteError:
      return "another rank failed or disagrees";
    case trncclInProgress:
      return "in progress";
    case trncclTimeout:
      return "a deadline passed";
    case trncclAborted:
      return "aborted";
    case trncclOutOfResources:
      return "out of memory, descriptors or shared memory";
  }
  return "unknown result";
}

const char* trncclGetLastError(trncclComm_t comm) {
  thread_local std::string text;
  const absl::Status failure =
      comm == nullptr ? absl::OkStatus() : trnccl::FailureOf(comm);
  text =
      failure.ok() ? trnccl::LastErrorText() : std::string(failure.message());
  return text.c_str();
}

trncclResult_t trncclCommFinalize(trncclComm_t comm) {
  const absl::StatusOr<trnccl::Communicator*> usable = trnccl::Usable(comm);
  return Returned(usable.ok() ? (*usable)->Finalize() : usable.status());
}

trncclResult_t trncclCommDestroy(trncclComm_t comm) {
  if (comm == nullptr) return Returned(NullArgument("trncclCommDestroy"));
  return Returned(trnccl::Destroy(comm));
}

trncclResult_t trncclCommAnnounceRefusal(trncclComm_t comm,
                                         const char* reason) {
  const absl::StatusOr<trnccl::Communicator*> usable = trnccl::Usable(comm);
  if (!usable.ok()) return Returned(usable.status());
  if (reason == nullptr)
    return Returned(NullArgument("trncclCommAnnounceRefusal"));
  (*usable)->AnnounceRefusal(absl::InvalidArgumentError(reason));
  return trncclSuccess;
}

trncclResult_t trncclCommAnnounceRefusedSend(trncclComm_t comm, int peer,
                                             int64_t tag, const char* reason) {
  return trnccl::AnnounceRefused(
      comm, {.direction = trnccl::Transfer::kSend, .peer = peer, .tag = tag},
      reason);
}

trncclResult_t trncclCommAnnounceRefusedRecv(trncclComm_t comm, int peer,
                                             int64_t tag, const char* reason) {
  return trnccl::AnnounceRefused(
      comm, {.direction = trnccl::Transfer::kReceive, .peer = peer, .tag = tag},
      reason);
}

trncclResult_t trncclCommAbort(trncclComm_t comm) {
  if (comm == nullptr) return Returned(NullArgument("trncclCommAbort"));
  return Returned(trnccl::Abort(comm));
}

trncclResult_t trncclCommGetAsyncError(trncclComm_t comm,
                                       trncclResult_t* error) {
  if (comm == nullptr || error == nullptr)
    return Returned(NullArgument("trncclCommGetAsyncError"));
  const absl::Status ours = trnccl::CheckProcess(comm->process_mark);
  if (!ours.ok()) return Returned(ours);
  *error = comm->init_result.load();
  if (*error == trncclSuccess) {
    trnccl::Communicator* communicator = comm->communicator.load();
    communicator->Watch();
    *error = trnccl::ResultOf(communicator->failure());
  }
  return trncclSuccess;
}

trncclResult_t trncclCommCount(trncclComm_t comm, int* ranks) {
  const absl::StatusOr<trnccl::Communicator*> usable = trnccl::Usable(comm);
  if (!usable.ok()) return Returned(usable.status());
  if (ranks == nullptr) return Returned(NullArgument("trncclCommCount"));
  *ranks = (*usable)->membership().ranks;
  return trncclSuccess;
}

trncclResult_t trncclCommUserRank(trncclComm_t comm, int* rank) {
  const absl::StatusOr<trnccl::Communicator*> usable = trnccl::Usable(comm);
  if (!usable.ok()) return Returned(usable.status());
  if (rank == nullptr) return Returned(NullArgument("trncclCommUserRank"));
  *rank = (*usable)->membership().rank;
  return trncclSuccess;
}

trncclResult_t trncclCommInfo(trncclComm_t comm, trncclCommInfo_t* info) {
  const absl::StatusOr<trnccl::Communicator*> usable = trnccl::Usable(comm);
  if (!usable.ok()) return Returned(usable.status());
  if (info == nullptr) return Returned(NullArgument("trncclCommInfo"));
  const trnccl::Communicator& communicator = **usable;
  const trnccl::Topology& topology = communicator.topology();
  *info = {.rank = communicator.membership().rank,
           .ranks = communicator.membership().ranks,
           .local_rank = topology.local_rank,
           .local_ranks = static_cast<int>(topology.local_ranks().size()),
           .nodes = static_cast<int>(topology.grid.nodes.size()),
           .name = communicator.name().c_str(),
           .transport = communicator.transport_name().c_str(),
           .last_algorithm = communicator.last_algorithm().data()};
  return trncclSuccess;
}

trncclResult_t trncclCommSetTimeout(trncclComm_t comm, int64_t timeout_ms) {
  const absl::StatusOr<trnccl::Communicator*> usable = trnccl::Usable(comm);
  if (!usable.ok()) return Returned(usable.status());
  if (timeout_ms <= 0) {
    return Returned(absl::InvalidArgumentError(absl::StrCat(
        "trncclCommSetTimeout: ", timeout_ms, " ms isn't a time to wait")));
  }
  (*usable)->set_timeout_ms(timeout_ms);
  return trncclSuccess;
}

trncclResult_t trncclCommDumpCalls(trncclComm_t comm, char** text) {
  const absl::StatusOr<trnccl::Communicator*> usable = trnccl::Usable(comm);
  if (!usable.ok()) return Returned(usable.status());
  if (text == nullptr) return Returned(NullArgument("trncclCommDumpCalls"));
  *text = CopyOf((*usable)->recorder().Dump());
  return trncclSuccess;
}

trncclResult_t trncclCommDescribeRank(trncclComm_t comm, int rank,
                                      char** text) {
  const auto asked =
      trnccl::AskedAbout(comm, rank, text, "trncclCommDescribeRank");
  if (!asked.ok()) return Returned(asked.status());
  *text = CopyOf((*asked)->DescribePeer(rank));
  return trncclSuccess;
}

trncclResult_t trncclCommGetRankState(trncclComm_t comm, int rank,
                                      trncclRankState_t* state) {
  const auto asked =
      trnccl::AskedAbout(comm, rank, state, "trncclCommGetRankState");
  if (!asked.ok()) return Returned(asked.status());
  *state = trnccl::StateOf((*asked)->FateOf(rank));
  return trncclSuccess;
}

void trncclFreeText(char* text) { delete[] text; }

trncclResult_t trncclRedOpCreatePreMulSum(trncclRedOp_t* op, const void* factor,
                                          trncclDataType_t type,
                                          trncclComm_t comm) {
  if (op == nullptr || factor == nullptr)
    return Returned(NullArgument("trncclRedOpCreatePreMulSum"));
  const absl::StatusOr<trncclRedOp_t> made =
      trnccl::AddOperator(comm, factor, type);
  if (made.ok()) *op = *made;
  return Returned(made.status());
}

trncclResult_t trncclRedOpDestroy(trncclRedOp_t op, trncclComm_t comm) {
  return Returned(trnccl::RemoveOperator(comm, op));
}

trncclResult_t trncclMemAlloc(void** pointer, size_t bytes) {
  if (pointer == nullptr) return Returned(NullArgument("trncclMemAlloc"));
  const absl::StatusOr<std::byte*> memory = trnccl::AllocateShared(bytes);
  *pointer = memory.ok() ? *memory : nullptr;
  return Returned(memory.status());
}

trncclResult_t trncclMemFree(void* pointer) {
  if (pointer == nullptr) return trncclSuccess;
  return Returned(trnccl::FreeShared(static_cast<std::byte*>(pointer)));
}

trncclResult_t trncclCommRegister(trncclComm_t comm, void* pointer,
                                  size_t bytes, void** handle) {
  const absl::StatusOr<trnccl::Communicator*> usable = trnccl::Usable(comm);
  if (!usable.ok()) return Returned(usable.status());
  if (pointer == nullptr || bytes == 0 || handle == nullptr)
    return Returned(NullArgument("trncclCommRegister"));
  // Memory of trncclMemAlloc() is found by itself, and nothing else can be
  // mapped by peers: there's nothing to keep but the caller's handle.
  *handle = pointer;
  return trncclSuccess;
}

trncclResult_t trncclCommDeregister(trncclComm_t comm, void* handle) {
  const absl::StatusOr<trnccl::Communicator*> usable = trnccl::Usable(comm);
  if (!usable.ok()) return Returned(usable.status());
  if (handle == nullptr) return Returned(NullArgument("trncclCommDeregister"));
  return trncclSuccess;
}

}  // extern "C"
