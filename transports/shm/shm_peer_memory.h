// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The memory of the peers of a shared-memory transport: mapped where it's of
// transports/shared_memory.h, else read by the kernel (process_memory.h).
//
// Thread rule: that of PeerMemory.
//
//   ShmPeerMemory memory({.gate = &gate, .pids = {123}, .maps = true});
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transports/peer_memory.h"
#include "transports/shm/gate.h"
#include "transports/shm/mapping_table.h"
#include "transports/shm/rank_buffer.h"

namespace trnccl::shm {

class ShmPeerMemory final : public PeerMemory {
 public:
  struct Options {
    Gate* gate = nullptr;     // outlives this
    std::vector<pid_t> pids;  // of the gate's peers
    bool maps = false;        // peers may map what can be mapped
    bool reaches_unmapped = false;
  };
  explicit ShmPeerMemory(Options options);

  std::optional<MemoryOffer> Offer(std::span<const std::byte> buffer,
                                   Unmapped unmapped) override;
  absl::StatusOr<bool> Read(const OfferedSource& source, size_t offset,
                            std::span<std::byte> target) override;
  absl::Status Leave() override { return options_.gate->Leave(); }

 private:
  const Options options_;
  const OwnProcess own_;
  MappingTable mappings_;
  std::vector<RankBufferCache> caches_;  // by peer
};

}  // namespace trnccl::shm
