// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/gate.h"

#include <sched.h>

namespace trnccl::shm {

// Each side writes its word before it reads the other's: so either the one that
// enters sees that the other has left, or the one that leaves sees it inside.
std::optional<int> Gate::Enter() {
  own_.inside->store(1, std::memory_order_seq_cst);
  for (const Peer& peer : peers_) {
    if (peer.words.left->load(std::memory_order_seq_cst) == 0) [[likely]]
      continue;
    Exit();
    return peer.rank;
  }
  return std::nullopt;
}

bool Gate::Leave(const Deadline& deadline) {
  own_.left->store(1, std::memory_order_seq_cst);
  for (const Peer& peer : peers_) {
    while (peer.words.inside->load(std::memory_order_seq_cst) != 0) {
      if (deadline.expired()) return false;
      sched_yield();
    }
  }
  return true;
}

}  // namespace trnccl::shm
