// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Which step of a schedule may fire next, when every link holds at most one
// message. Steps of a lane fire in order; a step fires when all messages among
// its operands are there and all links it sends on are empty, and takes the
// messages off their links. What is in a message is the caller's business.
//
// No lane's choice depends on timing, so the network is determinate: whether
// it deadlocks, and which message meets which step, is the same in every
// interleaving. One is played, oldest ready lane first.
//
// Thread rule: thread-compatible. The schedule is borrowed and well-formed:
// peers are in range and all programs have the same lanes.
//
//   Network network(schedule);
//   while (std::optional<Firing> firing = network.Next()) {
//     ... network.messages() ...
//     network.Send(*firing, payload);
//   }
//   RETURN_IF_ERROR(network.Ended());
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "algorithms/schedule.h"

namespace trnccl {

struct Firing {
  int rank = 0;
  int lane = 0;
  int64_t index = 0;  // of the step in its lane
  const Step* step = nullptr;
};

struct Message {
  int32_t payload = 0;   // as given to Send, not negative
  int32_t receiver = 0;  // index in the sending step's send_to
};

class Network {
 public:
  explicit Network(const Schedule& schedule);

  // Fires the next step; its sends must follow before the next call. Nothing
  // when no step may fire: see Ended().
  std::optional<Firing> Next();

  // The messages that the step fired last took, in its operands' order.
  std::span<const Message> messages() const { return messages_; }

  // Puts a message on each link that the step sends on.
  void Send(const Firing& firing, int32_t payload);

  // Once Next() gave nothing: OK if all steps have fired and all links are
  // empty, or what each stuck step waits for.
  absl::Status Ended() const;

 private:
  static constexpr int64_t kNoLink = -1;
  static constexpr Message kNoMessage = {.payload = -1};

  Message& OnLink(int64_t link) { return links_[static_cast<size_t>(link)]; }
  bool IsFull(int64_t link) const {
    return links_[static_cast<size_t>(link)].payload != kNoMessage.payload;
  }

  struct LaneState {
    int64_t next = 0;       // step
    size_t conditions = 0;  // of that step: how many are known to hold
    int64_t blocked_on = kNoLink;
  };

  int64_t LinkOf(int lane, int sender, int receiver) const {
    return (int64_t{lane} * ranks_ + sender) * ranks_ + receiver;
  }
  LaneState& StateOf(int rank, int lane) {
    return states_[static_cast<size_t>(lane * ranks_ + rank)];
  }
  const std::vector<Step>& StepsOf(int rank, int lane) const {
    return schedule_.programs[static_cast<size_t>(rank)]
        .lanes[static_cast<size_t>(lane)]
        .steps;
  }
  // Tests the step's conditions in order, from the first not known to hold.
  bool IsReady(const Firing& firing, LaneState& state) const;
  void Take(const Firing& firing);
  void WakeIfBlockedOn(int rank, int lane, int64_t link);
  std::string WhatBlocks(int rank, int lane, const LaneState& state) const;

  const Schedule& schedule_;
  int ranks_;
  int lanes_;
  std::vector<LaneState> states_;
  std::deque<size_t> ready_;  // indices of states_
  // By link, kNoMessage where empty: 8 MB a lane for 1000 ranks.
  std::vector<Message> links_;
  std::vector<Message> messages_;
};

}  // namespace trnccl
