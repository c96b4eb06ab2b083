// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/members.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace trnccl::torch_binding {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};
// How long whoever is done may be gone before this rank is done, too.
constexpr std::chrono::milliseconds kAfterDeath{300};
constexpr std::chrono::milliseconds kAfterLeaving{3000};
// How long the word of a loss may take to all.
constexpr std::chrono::milliseconds kWordOfLoss{500};

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
  Gone gone = Find();
  if (gone.state == trncclRankPresent) {
    gone_since_.reset();
    return "";
  }
  if (!gone_since_.has_value()) gone_since_ = now;
  const auto patience =
      gone.state == trncclRankLost ? kAfterDeath : kAfterLeaving;
  return now - *gone_since_ < patience ? "" : std::move(gone.why);
}

std::string MemberWatch::WhyItFailed() {
  const auto until = Clock::now() + kWordOfLoss;
  while (sees_ && Clock::now() < until) {
    Gone gone = Find();
    if (gone.state != trncclRankPresent) return std::move(gone.why);
    std::this_thread::sleep_for(kBetweenLooks / 10);
  }
  return "";
}

MemberWatch::Gone MemberWatch::Find() const {
  Gone gone;
  // Others may have left since, because one was lost.
  for (const uint64_t member : members_) {
    const LivingGroups::Fate fate = LivingGroups::Get().FateOf(member);
    if (fate.state <= gone.state) continue;
    // Of "rank 3 (host a, pid 7): died", the number is that group's.
    const size_t begin = std::min(fate.text.find(" ("), fate.text.size());
    const size_t end = std::min(fate.text.find(':', begin), fate.text.size());
    gone = {fate.state,
            "the group can't be made without a member that is gone: " +
                fate.text + "; origin: rank " + std::to_string(member) +
                fate.text.substr(begin, end - begin)};
  }
  return gone;
}

}  // namespace trnccl::torch_binding
