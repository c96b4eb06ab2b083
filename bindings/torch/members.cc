// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/members.h"

#include <algorithm>
#include <utility>

namespace trnccl::torch_binding {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};
// How long whoever is done may be gone before this rank is done, too.
constexpr std::chrono::milliseconds kAfterDeath{300};
constexpr std::chrono::milliseconds kAfterLeaving{3000};

// The group's number of a rank of the job.
std::optional<int> NumberIn(trncclComm_t comm,
                            const std::vector<uint64_t>& ranks, uint64_t rank) {
  if (!ranks.empty()) {
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    if (found == ranks.end()) return std::nullopt;
    return static_cast<int>(found - ranks.begin());
  }
  int count = 0;
  if (trncclCommCount(comm, &count) != trncclSuccess ||
      rank >= static_cast<uint64_t>(count))
    return std::nullopt;
  return static_cast<int>(rank);
}

std::string Describe(trncclComm_t comm, int rank) {
  char* text = nullptr;
  if (trncclCommDescribeRank(comm, rank, &text) != trncclSuccess) return "";
  std::string copy = text;
  trncclFreeText(text);
  return copy;
}

}  // namespace

LivingGroups& LivingGroups::Get() {
  static auto& groups = *new LivingGroups;
  return groups;
}

void LivingGroups::Add(trncclComm_t comm, const std::vector<uint64_t>& ranks) {
  const std::lock_guard lock(mutex_);
  groups_.emplace(comm, ranks);
}

void LivingGroups::Remove(trncclComm_t comm) {
  const std::lock_guard lock(mutex_);
  groups_.erase(comm);
}

bool LivingGroups::empty() {
  const std::lock_guard lock(mutex_);
  return groups_.empty();
}

LivingGroups::Fate LivingGroups::FateOf(uint64_t rank) {
  const std::lock_guard lock(mutex_);
  Fate fate;
  bool is_present = false;
  for (const auto& [comm, ranks] : groups_) {
    const std::optional<int> number = NumberIn(comm, ranks, rank);
    trncclRankState_t state = trncclRankPresent;
    if (!number.has_value() ||
        trncclCommGetRankState(comm, *number, &state) != trncclSuccess)
      continue;
    if (state == trncclRankPresent) {
      is_present = true;
    } else if (state > fate.state) {
      fate = {state, Describe(comm, *number)};
    }
  }
  if (is_present && fate.state == trncclRankLeft) return {};
  return fate;
}

MemberWatch::MemberWatch(std::vector<uint64_t> members)
    : members_(std::move(members)),
      sees_(!members_.empty() && !LivingGroups::Get().empty()),
      next_look_(Clock::now() + kBetweenLooks) {}

std::string MemberWatch::WhyNot() {
  const auto now = Clock::now();
  if (!sees_ || now < next_look_) return "";
  next_look_ = now + kBetweenLooks;
  const std::optional<Gone> gone = Find();
  if (!gone.has_value()) return "";
  const auto patience =
      gone->fate.state == trncclRankLost ? kAfterDeath : kAfterLeaving;
  return now - gone->since < patience ? "" : Text(*gone);
}

std::string MemberWatch::WhoIsGone() {
  if (!sees_) return "";
  const std::optional<Gone> gone = Find();
  return gone.has_value() ? Text(*gone) : "";
}

std::optional<MemberWatch::Gone> MemberWatch::Find() {
  const auto now = Clock::now();
  std::optional<Gone> first;
  for (const uint64_t member : members_) {
    LivingGroups::Fate fate = LivingGroups::Get().FateOf(member);
    if (fate.state == trncclRankPresent) {
      gone_since_.erase(member);
      continue;
    }
    const auto since = gone_since_.emplace(member, now).first->second;
    // Others may have left since, because this one was gone.
    if (!first.has_value() || fate.state > first->fate.state ||
        (fate.state == first->fate.state && since < first->since))
      first = Gone{member, std::move(fate), since};
  }
  return first;
}

std::string MemberWatch::Text(const Gone& gone) {
  const std::string& told = gone.fate.text;
  // Of "rank 3 (host a, pid 7): died", the number is that group's.
  const size_t begin = std::min(told.find(" ("), told.size());
  const size_t end = std::min(told.find(':', begin), told.size());
  return "the group can't be made without a member that is gone: " + told +
         "; origin: rank " + std::to_string(gone.member) +
         told.substr(begin, end - begin);
}

}  // namespace trnccl::torch_binding
