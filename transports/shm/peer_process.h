// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A process that peers live in: whether it's alive, and how to wake it. Shared
// by all communicators of this process, so that a peer costs two descriptors
// however many there are.
//
// Thread rule: thread-safe.
//
//   ASSIGN_OR_RETURN(auto process, PeerProcess::Find({pid, doorbell}));
//   if (!process->alive()) ...
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transports/doorbell.h"

namespace trnccl::shm {

class PeerProcess {
 public:
  struct Key {
    int32_t pid = 0;
    std::string doorbell;  // empty: it has none

    auto operator<=>(const Key&) const = default;
  };

  // Finds or opens it.
  static absl::StatusOr<std::shared_ptr<PeerProcess>> Find(const Key& key);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Readable once it's dead; -1 for this process itself, and where the kernel
  // has no such descriptors.
  int pidfd() const { return pidfd_; }
  bool alive() const;
  Ringer* ringer() const { return ringer_.get(); }  // null: no doorbell

 private:
  PeerProcess(int pid, int pidfd, std::unique_ptr<Ringer> ringer);
  static absl::StatusOr<std::shared_ptr<PeerProcess>> Open(const Key& key);

  int pid_;
  int pidfd_;
  std::unique_ptr<Ringer> ringer_;
};

}  // namespace trnccl::shm
