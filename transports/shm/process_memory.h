// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Any memory of another process of this user, read and written by the kernel
// (process_vm_readv and its sister). A system call and a lookup of each page,
// but one copy instead of two: for large pieces. Where the kernel forbids it
// (Yama, a container's filter), every call is an error; so ask once, before
// relying on it.
//
// Thread rule: thread-safe.
//
//   RETURN_IF_ERROR(ReadProcess({.pid = 123, .address = address}, buffer));
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace trnccl::shm {

// A pointer that means something in that process only.
struct ProcessPointer {
  pid_t pid = 0;
  uint64_t address = 0;

  bool operator==(const ProcessPointer&) const = default;
};

absl::Status ReadProcess(const ProcessPointer& source,
                         std::span<std::byte> target);
absl::Status WriteProcess(const ProcessPointer& target,
                          std::span<const std::byte> source);

}  // namespace trnccl::shm
