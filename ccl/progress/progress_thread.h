// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The one progress thread of a process: drives the communicators that have
// asynchronous work which nobody waits for, so that calls complete by
// themselves. It's made with the first such call and sleeps while there is
// none.
//
// Thread rule: thread-safe.
//
//   thread->Add(&communicator);   // Drivable
//   thread->Notify();             // it has work now
//   thread->Remove(&communicator);
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/base/mutex.h"
#include "ccl/progress/backoff.h"
#include "ccl/progress/sleepers.h"

namespace trnccl {

// What the thread drives. It calls these from its own thread alone, never
// after Remove().
class Drivable {
 public:
  enum class Drive : uint8_t {
    kNoWork,  // nothing to do, or somebody else drives it
    kIdle,    // has work, nothing moved
    kMoved
  };
  virtual ~Drivable() = default;
  virtual Drive DriveOnce() = 0;
  // About to sleep: have peers ring. Returns kMoved if there's something to do
  // after all. Appends what else should wake it, also where it has no work.
  virtual Drive PrepareSleep(std::vector<int>* wake_fds) = 0;
};

class ProgressThread {
 public:
  // Made on first use, for the life of the process. A forked child has its
  // own.
  static absl::StatusOr<ProgressThread*> OfProcess();

  // For tests: one without a thread, who drive what's added by themselves.
  static std::unique_ptr<ProgressThread> WithoutThread(Sleepers* sleepers) {
    return std::unique_ptr<ProgressThread>(new ProgressThread(sleepers));
  }

  // Both also from within a drivable: what it completes may start or end
  // others.
  void Add(Drivable* drivable);
  // Returns once the thread is out of it, but at once from within.
  void Remove(Drivable* drivable);
  // Some drivable may have work. Cheap while the thread is awake.
  void Notify();

 private:
  explicit ProgressThread(Sleepers* sleepers) : sleepers_(sleepers) {}
  void Run();
  Drivable::Drive DriveAll();
  // Calls visit(drivable) for each, without the lock. One that's removed
  // meanwhile may hide another, which the next round sees.
  template <typename Visitor>
  void VisitAll(const Visitor& visit);
  // Sleeps until rung or notified.
  void SleepOnce();

  Sleepers* sleepers_;
  Mutex mutex_;
  std::vector<Drivable*> drivables_ ABSL_GUARDED_BY(mutex_);
  std::atomic<Drivable*> visited_ = nullptr;
  std::atomic<bool> notified_ = false;
  std::atomic<bool> resting_ = false;
};

}  // namespace trnccl
