// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/gate.h"

#include <sched.h>

#include "absl/strings/str_cat.h"
#include "ccl/base/clock.h"

namespace trnccl::shm {
namespace {

// For a peer's piece, should it have lost its core meanwhile.
constexpr int64_t kGraceMs = 50;

}  // namespace

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

bool Gate::EnterTo(size_t peer) {
  own_.inside->store(1, std::memory_order_seq_cst);
  if (peers_[peer].words.left->load(std::memory_order_seq_cst) == 0) [[likely]]
    return true;
  Exit();
  return false;
}

bool Gate::IsOpen(size_t peer) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  return peers_[peer].words.left->load(std::memory_order_relaxed) == 0;
}

absl::Status Gate::Leave() {
  own_.left->store(1, std::memory_order_seq_cst);
  const Deadline deadline = Deadline::After(kGraceMs);
  for (const Peer& peer : peers_) {
    while (peer.words.inside->load(std::memory_order_seq_cst) != 0) {
      if (deadline.expired()) {
        return absl::DeadlineExceededError(absl::StrCat(
            "rank ", peer.rank,
            " was stopped while it worked on its peers' buffers; keep this "
            "rank's until it's gone"));
      }
      sched_yield();
    }
  }
  return absl::OkStatus();
}

}  // namespace trnccl::shm
