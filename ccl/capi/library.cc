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

absl::StatusOr<Settings> SettingsOf(const trncclConfig_t* config) {
  std::vector<std::string> overrides;
  if (config != nullptr) {
    if (config->size != sizeof(trncclConfig_t)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "config->size is ", config->size, ", not ", sizeof(trncclConfig_t),
          "; start from TRNCCL_CONFIG_INITIALIZER"));
    }
    if (config->settings_count < 0 || config->timeout_ms < 0)
      return absl::InvalidArgumentError(
          "config: a negative timeout_ms or settings_count");
    for (int i = 0; i < config->settings_count; ++i) {
      if (config->settings == nullptr || config->settings[i] == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("config: settings_count is ", config->settings_count,
                         ", but setting ", i, " is null"));
      }
      overrides.emplace_back(config->settings[i]);
    }
    if (config->timeout_ms > 0)
      overrides.push_back(
          absl::StrCat("TRNCCL_TIMEOUT_MS=", config->timeout_ms));
  }
  ASSIGN_OR_RETURN(Settings settings, LoadSettings(environ, overrides));
  RETURN_IF_ERROR(ConfigureLog(settings.log_level, settings.log_file));
  return settings;
}

std::string NameOf(const trncclConfig_t* config, const std::string& fallback) {
  return config != nullptr && config->name != nullptr ? config->name : fallback;
}

absl::StatusOr<MakeRequest> RequestOf(const trncclUniqueId& id,
                                      const Membership& membership,
                                      const trncclConfig_t* config) {
  if (membership.ranks < 1 || membership.rank < 0 ||
      membership.rank >= membership.ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", membership.rank, " of ", membership.ranks,
        " can't be: ranks start at 0 and end before their number"));
  }
  MakeRequest request{.membership = membership, .name = NameOf(config, "comm")};
  ASSIGN_OR_RETURN(request.id,
                   UniqueId::Parse({id.internal, sizeof(id.internal)}));
  ASSIGN_OR_RETURN(request.settings, SettingsOf(config));
  return request;
}

void FinishInit(trncclComm* comm,
                absl::StatusOr<std::unique_ptr<Communicator>> made) {
  if (made.ok()) {
    comm->owned = *std::move(made);
    comm->communicator.store(comm->owned.get());
    comm->init_result.store(trncclSuccess);
    // An abort from before the store has found nothing to abort.
    if (comm->abort_init.load()) comm->owned->Abort();
    return;
  }
  {
    MutexLock lock(comm->mutex);
    comm->init_status = made.status();
  }
  comm->init_result.store(ResultOf(made.status()));
}

enum class InitMode : uint8_t { kBlocking, kNonBlocking };

absl::Status Init(trncclComm** comm, MakeRequest request, InitMode mode) {
  auto made = std::make_unique<trncclComm>();
  made->process_mark = ProcessMark();
  request.abort = &made->abort_init;
  const int rank = request.membership.rank;
  if (mode == InitMode::kBlocking) {
    FinishInit(made.get(), MakeCommunicator(request));
    if (made->init_result.load() != trncclSuccess) {
      MutexLock lock(made->mutex);
      return made->init_status;
    }
    *comm = made.release();
    return absl::OkStatus();
  }
  try {
    made->init_thread =
        std::thread([handle = made.get(), request = std::move(request)] {
          FinishInit(handle, MakeCommunicator(request));
        });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", rank,
                     ": can't start a thread for a non-blocking "
                     "init: ",
                     error.what(),
                     "; raise the limits of threads and memory (ulimit -u, "
                     "-v)"));
  }
  *comm = made.release();
  return absl::OkStatus();
}

absl::Status Split(trncclComm* parent, const SplitRequest& request,
                   trncclComm** child) {
  ASSIGN_OR_RETURN(Communicator * communicator, Usable(parent));
  if (request.color < kNoColor) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", communicator->membership().rank, ": split: color ",
        request.color,
        " is negative; pass TRNCCL_SPLIT_NOCOLOR (-1) to join no group"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> made,
                   SplitCommunicator(communicator, request));
  *child = nullptr;
  if (made == nullptr) return absl::OkStatus();
  auto handle = std::make_unique<trncclComm>();
  handle->process_mark = ProcessMark();
  FinishInit(handle.get(), std::move(made));
  *child = handle.release();
  return absl::OkStatus();
}

absl::Status NullArgument(const char* call) {
  return absl::InvalidArgumentError(
      absl::StrCat(call, ": an argument is null"));
}

template <typename Element>
Element Load(const void* from) {
  Element element;
  std::memcpy(&element, from, sizeof(element));
  return element;
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

}  // namespace
}  // namespace trnccl

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

trncclResult_t trncclGetUniqueId(trncclUniqueId* id) {
  if (id == nullptr) return Returned(NullArgument("trncclGetUniqueId"));
  const absl::StatusOr<trnccl::Settings> settings = trnccl::SettingsOf(nullptr);
  if (!settings.ok()) return Returned(settings.status());
  const absl::StatusOr<trnccl::UniqueId> made = trnccl::CreateUniqueId(
      {.names = settings->socket_ifname, .family = settings->socket_family});
  if (!made.ok()) return Returned(made.status());
  const std::string bytes = made->Serialize();
  std::memcpy(id->internal, bytes.data(), sizeof(id->internal));
  return trncclSuccess;
}

trncclResult_t trncclCommInitRank(trncclComm_t* comm, int ranks,
                                  trncclUniqueId id, int rank) {
  return trncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

trncclResult_t trncclCommInitRankConfig(trncclComm_t* comm, int ranks,
                                        trncclUniqueId id, int rank,
                                        const trncclConfig_t* config) {
  if (comm == nullptr) return Returned(NullArgument("trncclCommInitRank"));
  *comm = nullptr;
  absl::StatusOr<trnccl::MakeRequest> request =
      trnccl::RequestOf(id, {.rank = rank, .ranks = ranks}, config);
  if (!request.ok()) return Returned(request.status());
  const bool blocking = config == nullptr || config->blocking != 0;
  const absl::Status status = trnccl::Init(
      comm, *std::move(request),
      blocking ? trnccl::InitMode::kBlocking : trnccl::InitMode::kNonBlocking);
  if (!status.ok()) return Returned(status);
  return blocking ? trncclSuccess : trncclInProgress;
}

trncclResult_t trncclCommSplit(trncclComm_t comm, int color, int key,
                               trncclComm_t* newcomm,
                               const trncclConfig_t* config) {
  if (newcomm == nullptr) return Returned(NullArgument("trncclCommSplit"));
  const absl::StatusOr<trnccl::Communicator*> parent = trnccl::Usable(comm);
  if (!parent.ok()) return Returned(parent.status());
  absl::StatusOr<trnccl::Settings> settings =
      config == nullptr ? (*parent)->settings() : trnccl::SettingsOf(config);
  if (!settings.ok()) return Returned(settings.status());
  return Returned(trnccl::Split(
      comm,
      {.color = color,
       .key = key,
       .settings = *std::move(settings),
       .name =
           trnccl::NameOf(config, absl::StrCat((*parent)->name(), "/", color))},
      newcomm));
}

trncclResult_t trncclCommFinalize(trncclComm_t comm) {
  const absl::StatusOr<trnccl::Communicator*> usable = trnccl::Usable(comm);
  return Returned(usable.ok() ? (*usable)->Finalize() : usable.status());
}

trncclResult_t trncclCommDestroy(trncclComm_t comm) {
  if (comm == nullptr) return Returned(NullArgument("trncclCommDestroy"));
  return Returned(trnccl::Destroy(comm));
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
  const std::string dump = (*usable)->recorder().Dump();
  *text = new char[dump.size() + 1];
  std::memcpy(*text, dump.c_str(), dump.size() + 1);
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
