// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of the C interface that makes communicators: from ids, by splitting,
// shrinking and growing.
#include <unistd.h>

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
#include "ccl/communicator/resize.h"

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

// The handle of one that was made from another.
trncclComm* HandleOf(std::unique_ptr<Communicator> made) {
  auto handle = std::make_unique<trncclComm>();
  handle->process_mark = ProcessMark();
  FinishInit(handle.get(), std::move(made));
  return handle.release();
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
  *child = made == nullptr ? nullptr : HandleOf(std::move(made));
  return absl::OkStatus();
}

// The settings and the name of a communicator that's made from another one.
struct Inherited {
  Settings settings;
  std::string name;
};

absl::StatusOr<Inherited> Inherit(const Communicator& parent,
                                  const trncclConfig_t* config,
                                  const std::string& suffix) {
  Inherited inherited{
      .settings = parent.settings(),
      .name = NameOf(config, absl::StrCat(parent.name(), suffix))};
  if (config != nullptr) {
    ASSIGN_OR_RETURN(inherited.settings, SettingsOf(config));
  }
  return inherited;
}

absl::Status Shrink(trncclComm* parent, const std::vector<int>& excluded,
                    const trncclConfig_t* config, trncclComm** made) {
  ASSIGN_OR_RETURN(Communicator * communicator, Usable(parent));
  ASSIGN_OR_RETURN(Inherited inherited,
                   Inherit(*communicator, config, "/shrunk"));
  ASSIGN_OR_RETURN(
      auto rest, ShrinkCommunicator(*communicator,
                                    {.excluded = excluded,
                                     .settings = std::move(inherited.settings),
                                     .name = std::move(inherited.name)}));
  *made = HandleOf(std::move(rest));
  return absl::OkStatus();
}

absl::Status Grow(trncclComm* parent, const trncclUniqueId* id, int ranks,
                  const trncclConfig_t* config, trncclComm** made) {
  ASSIGN_OR_RETURN(Communicator * communicator, Usable(parent));
  ASSIGN_OR_RETURN(Inherited inherited,
                   Inherit(*communicator, config, "/grown"));
  GrowRequest request{.ranks = ranks,
                      .settings = std::move(inherited.settings),
                      .name = std::move(inherited.name)};
  if (id != nullptr) {
    ASSIGN_OR_RETURN(request.id,
                     UniqueId::Parse({id->internal, sizeof(id->internal)}));
  }
  ASSIGN_OR_RETURN(auto grown, GrowCommunicator(communicator, request));
  *made = HandleOf(std::move(grown));
  return absl::OkStatus();
}

}  // namespace
}  // namespace trnccl

using trnccl::NullArgument;
using trnccl::Returned;

extern "C" {

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

trncclResult_t trncclCommShrink(trncclComm_t comm, const int* exclude,
                                int exclude_count, trncclComm_t* newcomm,
                                const trncclConfig_t* config, int flags) {
  if (newcomm == nullptr || (exclude == nullptr && exclude_count != 0))
    return Returned(NullArgument("trncclCommShrink"));
  *newcomm = nullptr;
  if (exclude_count < 0 || (flags & ~TRNCCL_SHRINK_ABORT) != 0) {
    return Returned(absl::InvalidArgumentError(
        "trncclCommShrink: a negative exclude_count, or unknown flags"));
  }
  if ((flags & TRNCCL_SHRINK_ABORT) != 0) {
    const trncclResult_t aborted = trncclCommAbort(comm);
    if (aborted != trncclSuccess) return aborted;
  }
  return Returned(trnccl::Shrink(comm, {exclude, exclude + exclude_count},
                                 config, newcomm));
}

trncclResult_t trncclCommGrow(trncclComm_t comm, int ranks,
                              const trncclUniqueId* id, int rank,
                              trncclComm_t* newcomm,
                              const trncclConfig_t* config) {
  if (newcomm == nullptr || (comm == nullptr && id == nullptr))
    return Returned(NullArgument("trncclCommGrow"));
  *newcomm = nullptr;
  if (comm == nullptr)
    return trncclCommInitRankConfig(newcomm, ranks, *id, rank, config);
  if (rank >= 0) {
    return Returned(absl::InvalidArgumentError(
        "trncclCommGrow: ranks that are there keep their numbers: pass -1"));
  }
  return Returned(trnccl::Grow(comm, id, ranks, config, newcomm));
}

}  // extern "C"
