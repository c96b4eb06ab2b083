// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Keeps peers off the buffers of a rank that has given up a call: a rank is
// inside while it touches buffers of others, and one that leaves for good waits
// until nobody is. Nobody enters any more once one has left. So a rank that
// comes late, after a deadline say, never writes where the call's memory was.
//
// Thread rule: thread-compatible; each rank has its own, over words that all of
// them share.
//
//   if (std::optional<int> left = gate.Enter()) return ...;  // that rank
//   ... touch the peers' buffers, for less than a millisecond ...
//   gate.Exit();
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace trnccl::shm {

// A rank's own, which only it writes.
struct GateWords {
  std::atomic<uint32_t>* inside = nullptr;
  std::atomic<uint32_t>* left = nullptr;
};

class Gate {
 public:
  struct Peer {
    int rank = 0;
    GateWords words;
  };

  Gate() = default;
  Gate(const GateWords& own, std::vector<Peer> peers)
      : own_(own), peers_(std::move(peers)) {}

  // To the buffers of all. The rank that has left, if one has; else this rank
  // is inside until Exit().
  std::optional<int> Enter();
  // To those of one peer alone, by its place among the peers; false if that has
  // left.
  bool EnterTo(size_t peer);
  // Whether what was read of that peer since is still good: a rank that leaves
  // doesn't wait for ever.
  bool IsOpen(size_t peer) const;
  void Exit() { own_.inside->store(0, std::memory_order_release); }

  // For good. An error if a peer is still inside after a while: stopped, or
  // dead.
  absl::Status Leave();

  int rank(size_t peer) const { return peers_[peer].rank; }

 private:
  GateWords own_;
  std::vector<Peer> peers_;
};

}  // namespace trnccl::shm
