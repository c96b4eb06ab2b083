// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/peer_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/mutex.h"
#include "ccl/base/status_macros.h"
#include "transports/system_error.h"

namespace trnccl::shm {

PeerProcess::PeerProcess(int pid, int pidfd, std::unique_ptr<Ringer> ringer)
    : pid_(pid), pidfd_(pidfd), ringer_(std::move(ringer)) {}

PeerProcess::~PeerProcess() {
  if (pidfd_ >= 0) close(pidfd_);
}

bool PeerProcess::alive() const {
  if (pidfd_ < 0) return kill(pid_, 0) == 0 || errno != ESRCH;
  pollfd entry = {.fd = pidfd_, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 0;
}

absl::StatusOr<std::shared_ptr<PeerProcess>> PeerProcess::Open(const Key& key) {
  std::unique_ptr<Ringer> ringer;
  if (!key.doorbell.empty()) {
    ASSIGN_OR_RETURN(ringer, Ringer::Open(key.doorbell));
  }
  if (key.pid == getpid()) {
    return std::shared_ptr<PeerProcess>(
        new PeerProcess(key.pid, -1, std::move(ringer)));
  }
  // Close-on-exec by itself. By number, since this libc may lack the name.
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, key.pid, 0));
  if (pidfd < 0 && errno == ESRCH) {
    return absl::UnavailableError("there's no such process");
  }
  // Kernels before 5.3, some sandboxes and valgrind have no such call: then the
  // process is asked for by its number.
  const bool lacks_pidfds = errno == ENOSYS || errno == EPERM;
  if (pidfd < 0 && !lacks_pidfds) return SystemError(errno, "pidfd_open");
  return std::shared_ptr<PeerProcess>(
      new PeerProcess(key.pid, pidfd, std::move(ringer)));
}

absl::StatusOr<std::shared_ptr<PeerProcess>> PeerProcess::Find(const Key& key) {
  static Mutex& mutex = *new Mutex;
  static auto& known = *new std::map<Key, std::weak_ptr<PeerProcess>>;
  MutexLock lock(mutex);
  std::erase_if(known,
                [](const auto& entry) { return entry.second.expired(); });
  const auto found = known.find(key);
  if (found != known.end()) {
    std::shared_ptr<PeerProcess> process = found->second.lock();
    // The number of a dead process may be another's by now.
    if (process != nullptr && process->alive()) return process;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<PeerProcess> process, Open(key));
  known[key] = process;
  return process;
}

}  // namespace trnccl::shm
