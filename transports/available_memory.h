// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// How much memory there is to take, so that taking more is an error of ours and
// not the end of some process of the kernel's choice: filling a memfd has no
// other bound. An estimate, and only at the time of asking.
//
// Thread rule: a pure question to the system.
//
//   if (bytes > AvailableMemoryBytes()) return
//   absl::ResourceExhaustedError(...);
#pragma once

#include <cstdint>

namespace trnccl {

// What the machine has left, within the limit of the process's control group;
// UINT64_MAX where the system doesn't say.
uint64_t AvailableMemoryBytes();

}  // namespace trnccl
