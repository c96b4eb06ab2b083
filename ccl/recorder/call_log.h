// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a recorder's ring holds, as plain values: read out of another process,
// and rendered as what PyTorch's flight-recorder analyser reads.
//
// Thread rule: plain values and pure functions.
//
//   ASSIGN_OR_RETURN(CallLog log, ReadCallRing(mapping, read_memory));
//   file << CallLogJson(log);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/clock.h"
#include "ccl/base/membership.h"
#include "ccl/recorder/call_ring.h"

namespace trnccl {

// Whose calls they are.
struct CallLogOwner {
  Membership membership;
  std::string name;
  std::string description;
  std::string hostname;
  int64_t pid = 0;
  uint32_t cookie = 0;
  int64_t timeout_ms = 0;
};

// Times are dates, in nanoseconds since 1970; 0: not yet.
struct LoggedCall {
  uint64_t call = 0;
  CallKind kind{};
  DataType type{};
  ReduceOp op{};
  CallState state{};
  uint64_t count = 0;
  int32_t peer = -1;
  int32_t tag = 0;
  uint32_t sequence = 0;
  std::string algorithm;
  int64_t created_ns = 0;
  int64_t started_ns = 0;
  int64_t finished_ns = 0;
};

struct CallLog {
  CallLogOwner owner;
  std::vector<LoggedCall> calls;  // the oldest first
  uint32_t last_scheduled = 0;
  uint32_t last_started = 0;
  uint32_t last_completed = 0;
  std::string cause;    // of the communicator's failure; empty: none
  int64_t read_ns = 0;  // when it was read
};

// What time-stamps of this machine mean, as dates.
class TickDates {
 public:
  // Ticks between `first` and now become dates; those outside are clamped.
  explicit TickDates(const TickAnchor& first);
  int64_t DateNs(uint64_t ticks) const {
    return TicksToNs(ticks, first_, last_) + offset_ns_;
  }
  int64_t DateOr0(uint64_t ticks) const {
    return ticks == 0 ? 0 : DateNs(ticks);
  }
  int64_t now_ns() const { return last_.ns + offset_ns_; }

 private:
  TickAnchor first_;
  TickAnchor last_;
  int64_t offset_ns_;  // from the monotonic clock to the date
};

// What a slot says, where its numbers are known to be in range. Whether it was
// whole is the caller's to find out, by the stamp.
LoggedCall LoggedFrom(const CallSlot& slot, const CallRingHeader& header,
                      const TickDates& dates);

// Bytes that each rank's call reads and writes, in elements.
struct CallSizes {
  uint64_t input = 0;
  uint64_t output = 0;
};
CallSizes SizesOf(const LoggedCall& call, int ranks);

// Copies from an address of the process that the ring belongs to.
using ReadMemory =
    std::function<absl::Status(uint64_t address, std::span<std::byte> into)>;

struct RingPlace {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// InvalidArgument if it isn't a ring of this version, whole. What is written at
// the moment, and what no recorder writes, is left out.
absl::StatusOr<CallLog> ReadCallRing(const RingPlace& place,
                                     const ReadMemory& read);

// Names as PyTorch's analyser knows them.
const char* AnalyserName(CallKind kind);
const char* AnalyserName(DataType type);

// A failed call keeps the state that it had reached, as the analyser knows no
// other, and is marked besides.
std::string CallLogJson(const CallLog& log);

}  // namespace trnccl
