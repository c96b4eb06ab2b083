// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Time: nanoseconds of the monotonic clock, deadlines, and a time-stamp counter
// that costs no clock call. Not for wall-clock dates.
//
// Thread rule: plain values and pure functions.
//
//   Deadline deadline = Deadline::After(settings.timeout_ms);
//   while (!done) {
//     if (deadline.expired()) return TimedOut();
//     poll(&fds, count, deadline.remaining_ms());
//   }
#pragma once

#include <cstdint>

namespace trnccl {

// Nanoseconds of CLOCK_MONOTONIC: only differences mean anything.
int64_t NowNs();

// For tests that play hours in virtual time: NowNs() asks this instead, in
// every thread. Null: the clock again.
void SetClockForTest(int64_t (*now_ns)());

// A moment that a wait must not outlast. Copied down through every layer, so
// that the waits of one call share one budget.
class Deadline {
 public:
  // A delay below zero has expired already; one beyond the clock never does.
  static Deadline After(int64_t delay_ms);
  static Deadline Never() { return Deadline(INT64_MAX); }

  bool expired() const { return at_ns_ != INT64_MAX && NowNs() >= at_ns_; }

  // What is left, rounded up so that a poll() of it doesn't wake too early; 0
  // once expired, INT_MAX at most.
  int remaining_ms() const;

  // The earlier of the two.
  static Deadline Earlier(Deadline a, Deadline b) {
    return a.at_ns_ < b.at_ns_ ? a : b;
  }

 private:
  explicit Deadline(int64_t at_ns) : at_ns_(at_ns) {}

  int64_t at_ns_;  // INT64_MAX: never
};

// The processor's time-stamp counter: a few nanoseconds to read, in units of
// the machine's own.
uint64_t ReadTicks();

// One reading of both clocks. Ticks between two anchors turn into nanoseconds
// by a straight line, so that nothing has to be calibrated in advance.
struct TickAnchor {
  uint64_t ticks;
  int64_t ns;

  static TickAnchor Now();
};

// NowNs() as it was when `ticks` were read: exact to the precision of the
// anchors for ticks between them, clamped to them outside.
int64_t TicksToNs(uint64_t ticks, const TickAnchor& first,
                  const TickAnchor& last);

}  // namespace trnccl
