// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a rank tells its peers so that they find its shared memory, as text.
//
// Thread rule: plain values and pure functions.
//
//   ASSIGN_OR_RETURN(Address address, Address::Parse(text));
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trnccl::shm {

struct Address {
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t inode = 0;
  // Random, also in the memory itself: a process that has inherited the numbers
  // can't be taken for the one meant.
  uint64_t token = 0;
  uint64_t pid_namespace = 0;  // in which `pid` counts
  std::string doorbell;        // empty: it never sleeps

  std::string Text() const;
  static absl::StatusOr<Address> Parse(const std::string& text);
};

// This process's own.
absl::StatusOr<uint64_t> PidNamespace();

}  // namespace trnccl::shm
