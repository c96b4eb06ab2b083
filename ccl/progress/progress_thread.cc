// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/progress/progress_thread.h"

#include <algorithm>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "ccl/progress/process_mark.h"
#include "ccl/progress/short_slices.h"

namespace trnccl {
namespace {

// The thread shares cores with the computation that it overlaps: it yields at
// once and sleeps soon.
constexpr WaitPolicy kPolicy{.spin_ns = 0, .yield_ns = 20'000};

// An upper bound on one sleep: deadlines are looked at this often.
constexpr int kSleepMs = 100;

thread_local bool in_progress_thread = false;

}  // namespace

absl::StatusOr<ProgressThread*> ProgressThread::OfProcess() {
  static Mutex mutex;
  static ProgressThread* progress = nullptr;
  static int process_mark = 0;
  MutexLock lock(mutex);
  if (process_mark == ProcessMark()) return progress;
  ASSIGN_OR_RETURN(Sleepers * sleepers, Sleepers::OfProcess());
  auto made = std::unique_ptr<ProgressThread>(new ProgressThread(sleepers));
  try {
    std::thread([thread = made.get()] { thread->Run(); }).detach();
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("can't start the progress thread that asynchronous calls "
                     "need: ",
                     error.what(), "; raise the limit of threads (ulimit -u)"));
  }
  progress = made.release();
  process_mark = ProcessMark();
  return progress;
}

void ProgressThread::Add(Drivable* drivable) {
  MutexLock lock(mutex_);
  drivables_.push_back(drivable);
}

void ProgressThread::Remove(Drivable* drivable) {
  {
    MutexLock lock(mutex_);
    std::erase(drivables_, drivable);
  }
  if (in_progress_thread) return;
  while (visited_.load() == drivable) visited_.wait(drivable);
}

void ProgressThread::Notify() {
  notified_.store(true);
  if (resting_.load()) sleepers_->WakeAll();
}

template <typename Visitor>
void ProgressThread::VisitAll(const Visitor& visit) {
  for (size_t i = 0;; ++i) {
    {
      MutexLock lock(mutex_);
      if (i >= drivables_.size()) return;
      visited_.store(drivables_[i]);
    }
    visit(visited_.load());
    visited_.store(nullptr);
    visited_.notify_all();
  }
}

Drivable::Drive ProgressThread::DriveAll() {
  Drivable::Drive result = Drivable::Drive::kNoWork;
  VisitAll([&](Drivable* drivable) {
    result = std::max(result, drivable->DriveOnce());
  });
  return result;
}

void ProgressThread::SleepOnce() {
  Sleepers::Announcement announcement(sleepers_);
  resting_.store(true);
  std::vector<int> wake_fds;
  bool work = false;
  bool moved = notified_.exchange(false);
  VisitAll([&](Drivable* drivable) {
    const auto drive = drivable->PrepareSleep(&wake_fds);
    work |= drive != Drivable::Drive::kNoWork;
    moved |= drive == Drivable::Drive::kMoved;
  });
  if (!moved && work) announcement.SleepOn(wake_fds, kSleepMs);
  if (!moved && !work) announcement.Rest(wake_fds);
  resting_.store(false);
}

void ProgressThread::Run() {
  in_progress_thread = true;
  UseShortSlices();
  Backoff backoff(kPolicy);
  for (;;) {
    switch (DriveAll()) {
      case Drivable::Drive::kMoved:
        backoff.Reset();
        break;
      case Drivable::Drive::kIdle:
        if (backoff.Next() == Backoff::kSleep) SleepOnce();
        break;
      case Drivable::Drive::kNoWork:
        SleepOnce();
        backoff.Reset();
        break;
    }
  }
}

}  // namespace trnccl
