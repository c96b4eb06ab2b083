// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A lock that clang's thread-safety analysis understands: std::mutex with
// Abseil's annotations. absl::Mutex itself is opaque to ThreadSanitizer in
// Debian's build. Not for the path of a call's steps, which takes no lock.
//
//   Mutex mutex_;
//   int calls_ ABSL_GUARDED_BY(mutex_) = 0;
//   void Count() { MutexLock lock(mutex_); ++calls_; }
#pragma once

#include <mutex>

#include "absl/base/thread_annotations.h"

namespace trnccl {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mutex_.try_lock();
  }

 private:
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace trnccl
