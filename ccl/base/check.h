// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// CHECK for our own broken invariants: prints the place and aborts. Never for a
// user's input, a peer's bytes or the environment: those are absl::Status.
//
//   TRNCCL_CHECK(step < lane.steps.size());
#pragma once

namespace trnccl::internal {

[[noreturn]] void CheckFailed(const char* file, int line,
                              const char* condition);

}  // namespace trnccl::internal

#define TRNCCL_CHECK(condition)                                        \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::trnccl::internal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)
