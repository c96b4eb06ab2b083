// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/progress/process_mark.h"

#include <pthread.h>

#include <atomic>

namespace trnccl {
namespace {

std::atomic<int> process_mark = 1;

}  // namespace

int ProcessMark() {
  [[maybe_unused]] static const int registered = pthread_atfork(
      nullptr, nullptr,
      [] { process_mark.fetch_add(1, std::memory_order_relaxed); });
  return process_mark.load(std::memory_order_relaxed);
}

}  // namespace trnccl
