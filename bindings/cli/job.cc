// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/job.h"

#include <algorithm>
#include <utility>

namespace trnccl::cli {
namespace {

const JobCall* Collective(const Member& member, uint32_t sequence) {
  const auto found = std::find_if(
      member.calls.begin(), member.calls.end(), [&](const JobCall& call) {
        return !call.message && call.sequence == sequence;
      });
  return found == member.calls.end() ? nullptr : &*found;
}

}  // namespace

void AddMember(const JobCommunicator& like, Member member, Job* job) {
  auto& all = job->communicators;
  auto mine =
      std::find_if(all.begin(), all.end(), [&](const JobCommunicator& other) {
        return other.id == like.id && other.name == like.name &&
               other.ranks == like.ranks;
      });
  if (mine == all.end()) mine = all.insert(all.end(), like);
  auto& members = mine->members;
  const auto place = std::upper_bound(
      members.begin(), members.end(), member.rank,
      [](int rank, const Member& other) { return rank < other.rank; });
  members.insert(place, std::move(member));
}

const JobCall* CurrentCall(const Member& member) {
  return Ahead(member.scheduled, member.completed) > 0
             ? Collective(member, member.completed + 1)
             : nullptr;
}

const JobCall* LastCall(const Member& member) {
  return Collective(member, member.completed);
}

const JobCall* CurrentMessage(const Member& member) {
  const auto found = std::find_if(
      member.calls.begin(), member.calls.end(), [](const JobCall& call) {
        return call.message && call.state != JobCall::kCompleted;
      });
  return found == member.calls.end() ? nullptr : &*found;
}

}  // namespace trnccl::cli
