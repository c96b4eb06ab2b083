// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/progress/sleepers.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ccl/progress/process_mark.h"

namespace trnccl {
namespace {

// Each thread that ever sleeps keeps one descriptor until it ends.
class WakeDescriptor {
 public:
  ~WakeDescriptor() { Close(); }
  int fd() {
    // The one that came with a fork wakes the parent's thread as well.
    if (process_mark_ != ProcessMark()) {
      Close();
      fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
      process_mark_ = ProcessMark();
    }
    return fd_;
  }

 private:
  void Close() {
    if (fd_ >= 0) close(fd_);
  }

  int fd_ = -1;
  int process_mark_ = 0;
};

void Signal(int fd) {
  const uint64_t one = 1;
  // Full means signalled already.
  while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void Clear(int fd) {
  uint64_t count;
  while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

}  // namespace

absl::StatusOr<Sleepers*> Sleepers::OfProcess() {
  static Mutex mutex;
  static Sleepers* sleepers = nullptr;
  static int process_mark = 0;
  MutexLock lock(mutex);
  if (process_mark == ProcessMark()) return sleepers;
  absl::StatusOr<std::unique_ptr<Doorbell>> doorbell = Doorbell::Create();
  if (!doorbell.ok()) return std::move(doorbell).status();
  sleepers = new Sleepers(*std::move(doorbell));
  process_mark = ProcessMark();
  return sleepers;
}

Sleepers::Announcement::Announcement(Sleepers* sleepers) : sleepers_(sleepers) {
  thread_local WakeDescriptor descriptor;
  wake_fd_ = descriptor.fd();
  if (wake_fd_ < 0) return;
  MutexLock lock(sleepers_->mutex_);
  sleepers_->wake_fds_.push_back(wake_fd_);
}

Sleepers::Announcement::~Announcement() {
  if (wake_fd_ < 0) return;
  MutexLock lock(sleepers_->mutex_);
  auto& fds = sleepers_->wake_fds_;
  fds.erase(std::find(fds.begin(), fds.end(), wake_fd_));
}

void Sleepers::Announcement::SleepOn(std::span<const int> fds, int timeout_ms) {
  Poll(sleepers_->doorbell_->fd(), fds, timeout_ms);
}

void Sleepers::Announcement::Rest(std::span<const int> fds) {
  Poll(-1, fds, -1);
}

void Sleepers::Announcement::Poll(int doorbell_fd, std::span<const int> fds,
                                  int timeout_ms) {
  // Without a descriptor of its own a thread can't be woken by its siblings:
  // it looks again soon instead.
  constexpr int kBlindMs = 1;
  thread_local std::vector<pollfd> polled;
  polled.clear();
  polled.push_back({.fd = doorbell_fd, .events = POLLIN});
  polled.push_back({.fd = wake_fd_, .events = POLLIN});
  for (const int fd : fds) polled.push_back({.fd = fd, .events = POLLIN});
  const int limit_ms = wake_fd_ < 0 ? kBlindMs : timeout_ms;
  if (poll(polled.data(), polled.size(), limit_ms) <= 0) return;
  if (polled[1].revents != 0) Clear(wake_fd_);
  if (polled[0].revents == 0) return;
  sleepers_->doorbell_->Drain();
  sleepers_->WakeAll();
}

void Sleepers::WakeAll() {
  MutexLock lock(mutex_);
  for (const int fd : wake_fds_) Signal(fd);
}

}  // namespace trnccl
