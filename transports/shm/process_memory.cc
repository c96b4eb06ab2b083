// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/process_memory.h"

#include <sys/uio.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "transports/system_error.h"

namespace trnccl::shm {
namespace {

using Call = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*,
                         unsigned long, unsigned long);

struct CallName {
  Call call;
  const char* name;
};

// The kernel may do less than was asked for, as with read().
absl::Status Move(const CallName& move, ProcessPointer remote,
                  std::span<std::byte> local) {
  while (!local.empty()) {
    const iovec here = {.iov_base = local.data(), .iov_len = local.size()};
    const iovec there = {.iov_base = reinterpret_cast<void*>(remote.address),
                         .iov_len = local.size()};
    const ssize_t moved = move.call(remote.pid, &here, 1, &there, 1, 0);
    if (moved < 0 && errno == ESRCH) {
      return absl::UnavailableError(
          absl::StrCat("process ", remote.pid, " died"));
    }
    if (moved <= 0) {
      return SystemError(moved < 0 ? errno : EFAULT,
                         absl::StrCat(move.name, " of process ", remote.pid));
    }
    local = local.subspan(static_cast<size_t>(moved));
    remote.address += static_cast<uint64_t>(moved);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadProcess(const ProcessPointer& source,
                         std::span<std::byte> target) {
  return Move({process_vm_readv, "process_vm_readv"}, source, target);
}

absl::Status WriteProcess(const ProcessPointer& target,
                          std::span<const std::byte> source) {
  return Move({process_vm_writev, "process_vm_writev"}, target,
              {const_cast<std::byte*>(source.data()), source.size()});
}

}  // namespace trnccl::shm
