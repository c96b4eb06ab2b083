// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The doorbell of a process: what wakes its sleepers. One pipe per process,
// opened by peers through /proc, so no descriptor has to be handed over. A peer
// rings only while the sleeper's flag (Transport::SetPresence) is up, so nobody
// enters the kernel while all are awake.
//
// Several threads of a process may sleep on the one doorbell; who drains it
// wakes the others (ccl/progress does).
//
// Thread rule: Doorbell::Of() and Ring() are thread-safe.
//
//   Doorbell* bell = ...;                 // the sleeper's side
//   std::string address = bell->address();
//   ASSIGN_OR_RETURN(auto ringer, Ringer::Open(address));
//   ringer->Ring();                       // a peer's side
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace trnccl {

class Doorbell {
 public:
  // Close-on-exec, never blocking.
  static absl::StatusOr<std::unique_ptr<Doorbell>> Create();
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  int fd() const { return read_fd_; }  // readable after a ring
  // Process id and descriptor, for peers of the same machine and user.
  std::string address() const;
  void Drain();

 private:
  Doorbell(int read_fd, int write_fd);
  int read_fd_;
  int write_fd_;
};

class Ringer {
 public:
  static absl::StatusOr<std::unique_ptr<Ringer>> Open(
      const std::string& address);
  ~Ringer();
  Ringer(const Ringer&) = delete;
  Ringer& operator=(const Ringer&) = delete;

  void Ring();

 private:
  explicit Ringer(int fd);
  int fd_;
};

}  // namespace trnccl
