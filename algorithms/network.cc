// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/network.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trnccl {
namespace {

constexpr size_t kMostNamed = 8;

}  // namespace

Network::Network(const Schedule& schedule)
    : schedule_(schedule),
      ranks_(static_cast<int>(schedule.programs.size())),
      lanes_(ranks_ == 0 ? 0
                         : static_cast<int>(schedule.programs[0].lanes.size())),
      states_(static_cast<size_t>(ranks_) * static_cast<size_t>(lanes_)),
      links_(states_.size() * static_cast<size_t>(ranks_), kNoMessage) {
  for (size_t i = 0; i < states_.size(); ++i) ready_.push_back(i);
}

std::optional<Firing> Network::Next() {
  while (!ready_.empty()) {
    const size_t index = ready_.front();
    ready_.pop_front();
    LaneState& state = states_[index];
    Firing firing{.rank = static_cast<int>(index) % ranks_,
                  .lane = static_cast<int>(index) / ranks_,
                  .index = state.next};
    const std::vector<Step>& steps = StepsOf(firing.rank, firing.lane);
    if (state.next == static_cast<int64_t>(steps.size())) continue;
    firing.step = &steps[static_cast<size_t>(state.next)];
    if (!IsReady(firing, state)) continue;
    Take(firing);
    state = {.next = state.next + 1};
    ready_.push_back(index);
    return firing;
  }
  return std::nullopt;
}

bool Network::IsReady(const Firing& firing, LaneState& state) const {
  const Step& step = *firing.step;
  for (; state.conditions < step.operands.size(); ++state.conditions) {
    const int peer = step.operands[state.conditions].peer;
    if (peer == Operand::kNoPeer) continue;
    state.blocked_on = LinkOf(firing.lane, peer, firing.rank);
    if (!IsFull(state.blocked_on)) return false;
  }
  for (; state.conditions < step.operands.size() + step.send_to.size();
       ++state.conditions) {
    const int peer = step.send_to[state.conditions - step.operands.size()];
    state.blocked_on = LinkOf(firing.lane, firing.rank, peer);
    if (IsFull(state.blocked_on)) return false;
  }
  return true;
}

void Network::Take(const Firing& firing) {
  messages_.clear();
  for (const Operand& operand : firing.step->operands) {
    if (operand.peer == Operand::kNoPeer) continue;
    const int64_t link = LinkOf(firing.lane, operand.peer, firing.rank);
    messages_.push_back(std::exchange(OnLink(link), kNoMessage));
    WakeIfBlockedOn(operand.peer, firing.lane, link);
  }
}

void Network::Send(const Firing& firing, int32_t payload) {
  int32_t receiver = 0;
  for (int peer : firing.step->send_to) {
    const int64_t link = LinkOf(firing.lane, firing.rank, peer);
    OnLink(link) = {.payload = payload, .receiver = receiver++};
    WakeIfBlockedOn(peer, firing.lane, link);
  }
}

void Network::WakeIfBlockedOn(int rank, int lane, int64_t link) {
  LaneState& state = StateOf(rank, lane);
  if (state.blocked_on != link) return;
  state.blocked_on = kNoLink;
  ready_.push_back(static_cast<size_t>(lane * ranks_ + rank));
}

absl::Status Network::Ended() const {
  std::vector<std::string> stuck;
  for (size_t i = 0; i < states_.size(); ++i) {
    const int rank = static_cast<int>(i) % ranks_;
    const int lane = static_cast<int>(i) / ranks_;
    const auto steps = static_cast<int64_t>(StepsOf(rank, lane).size());
    if (states_[i].next == steps) continue;
    stuck.push_back(WhatBlocks(rank, lane, states_[i]));
  }
  const std::string_view kind = stuck.empty() ? "" : "deadlock: ";
  if (stuck.empty()) {
    for (int64_t link = 0; link < static_cast<int64_t>(links_.size()); ++link) {
      if (!IsFull(link)) continue;
      stuck.push_back(absl::StrCat("a message from rank ",
                                   link / ranks_ % ranks_, " to rank ",
                                   link % ranks_, " on lane ",
                                   link / ranks_ / ranks_, " is never taken"));
    }
  }
  if (stuck.empty()) return absl::OkStatus();
  const size_t all = stuck.size();
  if (all > kMostNamed) {
    stuck.resize(kMostNamed);
    stuck.push_back(absl::StrCat("and ", all - kMostNamed, " more"));
  }
  return absl::InternalError(
      absl::StrCat(std::string(kind), absl::StrJoin(stuck, "; ")));
}

std::string Network::WhatBlocks(int rank, int lane,
                                const LaneState& state) const {
  const Step& step = StepsOf(rank, lane)[static_cast<size_t>(state.next)];
  const bool receives = state.conditions < step.operands.size();
  const int peer = receives
                       ? step.operands[state.conditions].peer
                       : step.send_to[state.conditions - step.operands.size()];
  return absl::StrCat(
      "rank ", rank, ", lane ", lane, ", step ", state.next, " waits for ",
      receives ? "a message from rank " : "room on its link to rank ", peer);
}

}  // namespace trnccl
