// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/callback_threads.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

namespace trnccl::torch_binding {
namespace {

using Clock = std::chrono::steady_clock;

// A thread with nothing to do ends after this time.
constexpr auto kLinger = std::chrono::seconds(1);
// For this long, a callback waits for the one before it.
constexpr auto kGrace = std::chrono::milliseconds(50);

thread_local int level_of_thread = 0;

class CallbackThreads {
 public:
  // False, and the callback untouched, if there can be no thread for it.
  bool Post(Callback* callback) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!HaveIdle() && running_.empty()) return false;
    waiting_.push_back({std::move(*callback), Clock::now() + kGrace});
    changed_.notify_one();
    return true;
  }

 private:
  struct Waiting {
    Callback callback;
    Clock::time_point overdue;
  };

  // All below need the mutex.
  bool HaveIdle() {
    if (idle_ > 0) return true;
    try {
      std::thread([this] { Run(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    ++idle_;
    return true;
  }

  // The oldest that may run now.
  std::deque<Waiting>::iterator Next() {
    return std::find_if(waiting_.begin(), waiting_.end(),
                        [&](const Waiting& one) {
                          return running_.count(one.callback.level) == 0 ||
                                 one.overdue <= Clock::now();
                        });
  }

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    auto bored = Clock::now() + kLinger;
    while (!waiting_.empty() || Clock::now() < bored) {
      const auto next = Next();
      if (next == waiting_.end()) {
        // A copy: it's read again after the wait.
        const auto until = waiting_.empty() ? bored : waiting_.front().overdue;
        changed_.wait_until(lock, until);
        continue;
      }
      Callback callback = std::move(next->callback);
      waiting_.erase(next);
      RunOne(&callback, &lock);
      bored = Clock::now() + kLinger;
    }
    --idle_;
  }

  void RunOne(Callback* callback, std::unique_lock<std::mutex>* lock) {
    const auto mine = running_.insert(callback->level);
    --idle_;
    // If this one is stuck, somebody must see to the others.
    if (!waiting_.empty() && HaveIdle()) changed_.notify_one();
    lock->unlock();
    level_of_thread = callback->level + 1;
    callback->run();
    callback->run = nullptr;
    lock->lock();
    running_.erase(mine);
    ++idle_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  std::multiset<int> running_;  // their levels
  int idle_ = 0;
};

// Never destroyed: its threads are detached. A forked child has none of them.
CallbackThreads& OfProcess() {
  static std::mutex mutex;
  static CallbackThreads* threads = nullptr;
  static pid_t process = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  if (process != getpid()) {
    threads = new CallbackThreads;
    process = getpid();
  }
  return *threads;
}

}  // namespace

int CallbackLevel() { return level_of_thread; }

void RunApart(Callback callback) {
  if (!OfProcess().Post(&callback)) callback.run();
}

}  // namespace trnccl::torch_binding
