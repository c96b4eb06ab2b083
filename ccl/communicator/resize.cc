// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/communicator/resize.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ccl/base/status_macros.h"
#include "ccl/communicator/create.h"

namespace trnccl {
namespace {

absl::StatusOr<std::vector<int>> Survivors(const Membership& me,
                                           std::vector<int> excluded) {
  std::vector<int> survivors;
  for (const int rank : excluded) {
    if (rank >= 0 && rank < me.ranks) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", me.rank, ": shrink: rank ", rank,
        " is to be left out, but there are ranks 0 to ", me.ranks - 1));
  }
  for (int rank = 0; rank < me.ranks; ++rank)
    if (std::find(excluded.begin(), excluded.end(), rank) == excluded.end())
      survivors.push_back(rank);
  if (std::find(survivors.begin(), survivors.end(), me.rank) ==
      survivors.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", me.rank,
                     ": shrink: this rank is left out: those who are don't "
                     "call it"));
  }
  return survivors;
}

absl::Status InShrink(const absl::Status& status, const Membership& me,
                      const std::vector<int>& survivors) {
  return absl::Status(
      status.code(),
      absl::StrCat("rank ", me.rank, ": shrink to ranks ",
                   absl::StrJoin(survivors, ", "), ": ", status.message(),
                   "; if another one is lost, leave it out too, on all"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ShrinkCommunicator(
    const Communicator& parent, const ShrinkRequest& request) {
  const Membership& me = parent.membership();
  ASSIGN_OR_RETURN(const std::vector<int> survivors,
                   Survivors(me, request.excluded));
  MakeRequest make{.settings = request.settings, .name = request.name};
  make.membership = {
      .rank = static_cast<int>(
          std::find(survivors.begin(), survivors.end(), me.rank) -
          survivors.begin()),
      .ranks = static_cast<int>(survivors.size())};
  make.members = absl::StrJoin(survivors, ",");
  if (survivors.size() == 1) {
    ASSIGN_OR_RETURN(make.id, CreateUniqueId({.names = "lo"}));
  } else {
    const absl::StatusOr<UniqueId> id =
        parent.reunion().PlaceOf(survivors.front());
    if (!id.ok()) return InShrink(id.status(), me, survivors);
    make.id = *id;
    if (make.membership.rank == 0) make.place = parent.reunion().place();
  }
  absl::StatusOr<std::unique_ptr<Communicator>> made = MakeCommunicator(make);
  if (!made.ok()) return InShrink(made.status(), me, survivors);
  return made;
}

absl::StatusOr<std::unique_ptr<Communicator>> GrowCommunicator(
    Communicator* parent, const GrowRequest& request) {
  const Membership& me = parent->membership();
  if (request.ranks <= me.ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", me.rank, ": grow: ", request.ranks,
        " ranks aren't more than the ", me.ranks, " that there are"));
  }
  ASSIGN_OR_RETURN(
      const std::vector<std::string> ids,
      GatherTexts(parent, request.id ? request.id->Serialize() : ""));
  const auto first =
      std::find_if(ids.begin(), ids.end(),
                   [](const std::string& id) { return !id.empty(); });
  if (first == ids.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", me.rank, ": grow: no rank has passed a unique id"));
  }
  for (const std::string& id : ids) {
    if (id.empty() || id == *first) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", me.rank, ": grow: rank ", first - ids.begin(), " and rank ",
        &id - ids.data(), " have passed different unique ids"));
  }
  MakeRequest make{.membership = {.rank = me.rank, .ranks = request.ranks},
                   .settings = request.settings,
                   .name = request.name,
                   .abort = &parent->aborted()};
  ASSIGN_OR_RETURN(make.id, UniqueId::Parse(*first));
  return MakeCommunicator(make);
}

}  // namespace trnccl
