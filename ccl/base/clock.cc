// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/base/clock.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <climits>

namespace trnccl {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

constinit std::atomic<int64_t (*)()> clock_for_test = nullptr;

}  // namespace

void SetClockForTest(int64_t (*now_ns)()) { clock_for_test.store(now_ns); }

int64_t NowNs() {
  if (const auto now_ns = clock_for_test.load(std::memory_order_relaxed))
      [[unlikely]]
    return now_ns();
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Deadline Deadline::After(int64_t delay_ms) {
  const int64_t now_ns = NowNs();
  if (delay_ms >= (INT64_MAX - now_ns) / kNsPerMs) return Never();
  return Deadline(now_ns + std::max<int64_t>(delay_ms, 0) * kNsPerMs);
}

int Deadline::remaining_ms() const {
  if (at_ns_ == INT64_MAX) return INT_MAX;
  const int64_t left_ns = std::max<int64_t>(at_ns_ - NowNs(), 0);
  const int64_t left_ms = left_ns / kNsPerMs + (left_ns % kNsPerMs != 0);
  return static_cast<int>(std::min<int64_t>(left_ms, INT_MAX));
}

TickAnchor TickAnchor::Now() { return {ReadTicks(), NowNs()}; }

int64_t TicksToNs(uint64_t ticks, const TickAnchor& first,
                  const TickAnchor& last) {
  if (ticks <= first.ticks || last.ticks <= first.ticks) return first.ns;
  if (ticks >= last.ticks) return last.ns;
  const long double share = static_cast<long double>(ticks - first.ticks) /
                            static_cast<long double>(last.ticks - first.ticks);
  return first.ns + static_cast<int64_t>(
                        share * static_cast<long double>(last.ns - first.ns));
}

}  // namespace trnccl
