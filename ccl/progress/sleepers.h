// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The process's sleepers: threads with nothing left to do until a peer rings
// the process's one doorbell, a peer dies, or another thread wakes them. Who
// drains the doorbell wakes all the others, so no ring is lost.
//
// Thread rule: thread-safe.
//
//   ASSIGN_OR_RETURN(Sleepers* sleepers, Sleepers::OfProcess());
//   transports.SetPresence(Presence::kAsleep);
//   if (!Advance()) sleepers->SleepOn(transports.wake_fds(), timeout_ms);
//   transports.SetPresence(Presence::kAwake);
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/base/mutex.h"
#include "transports/doorbell.h"

namespace trnccl {

class Sleepers {
 public:
  // Made on first use, for the life of the process. A forked child has its
  // own.
  static absl::StatusOr<Sleepers*> OfProcess();

  const Doorbell& doorbell() const { return *doorbell_; }

  // Returns when the doorbell rang, one of `fds` is readable, WakeAll() was
  // called, or the time is over; also for no reason. A WakeAll() between
  // Announce() and SleepOn() isn't lost.
  class Announcement {
   public:
    explicit Announcement(Sleepers* sleepers);
    ~Announcement();
    Announcement(const Announcement&) = delete;
    Announcement& operator=(const Announcement&) = delete;

    void SleepOn(std::span<const int> fds, int timeout_ms);
    // The same for who has nothing to do with what the doorbell rings for.
    void Rest(std::span<const int> fds);

   private:
    void Poll(int doorbell_fd, std::span<const int> fds, int timeout_ms);

    Sleepers* sleepers_;
    int wake_fd_;
  };

  // Wakes every sleeping thread of this process.
  void WakeAll();

 private:
  explicit Sleepers(std::unique_ptr<Doorbell> doorbell)
      : doorbell_(std::move(doorbell)) {}

  std::unique_ptr<Doorbell> doorbell_;
  Mutex mutex_;
  std::vector<int> wake_fds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trnccl
