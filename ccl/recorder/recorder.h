// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The last calls of a communicator, always on: a ring of one cache line a call
// (call_ring.h), stamped by the time-stamp counter. Recording takes no lock,
// clock call or allocation. Dump() renders what PyTorch's flight-recorder
// analyser reads; `trnccl status` reads the ring from outside.
//
// Thread rule: one thread at a time records (who drives the communicator); any
// thread may dump meanwhile, and leaves out the call being overwritten.
//
//   const uint64_t call = recorder.Schedule({.kind = CallKind::kAllReduce,
//   ...}); recorder.Start(call, "ring"); recorder.Complete(call);
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "ccl/base/clock.h"
#include "ccl/base/types.h"
#include "ccl/recorder/call_log.h"
#include "ccl/recorder/call_ring.h"
#include "transports/shared_memory.h"

namespace trnccl {

struct RecordedCall {
  CallKind kind = KindOf(Collective::kBarrier);
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  uint16_t algorithm = 0;  // of NumberOf(), where it's known already
  uint64_t count = 0;      // as the caller gave it
  int32_t peer = -1;       // root of a collective, other side of a message
  int32_t tag = 0;         // of a message
};

class Recorder {
 public:
  struct Options {
    CallLogOwner owner;  // but for its pid
    uint32_t calls = 1;  // kept, rounded up to a power of two
    // Where Fail() leaves a dump: this, the communicator's cookie, _, the rank.
    // Empty: nowhere.
    std::string dump_prefix;
  };

  // Without descriptors or shared memory it records all the same, but nobody
  // sees that from outside.
  explicit Recorder(Options options);

  // The number by which calls name an algorithm; 0 once there are too many.
  uint16_t NumberOf(std::string_view algorithm);

  // Returns what names the call in the functions below. They ignore a call that
  // later ones have pushed out of the ring.
  uint64_t Schedule(const RecordedCall& call);
  // Both at once.
  uint64_t Begin(const RecordedCall& call);
  // "" where there's no algorithm.
  void Start(uint64_t call, std::string_view algorithm);
  void Complete(uint64_t call) { Finish(call, CallState::kCompleted); }
  void Fail(uint64_t call) { Finish(call, CallState::kFailed); }

  // The communicator has failed: keeps the first cause, and leaves a dump.
  void FailAll(const absl::Status& cause);

  // JSON, oldest call first.
  std::string Dump() const;

 private:
  // How far a call is when it's entered.
  struct Beginning {
    CallState state = CallState::kScheduled;
    uint64_t started_ticks = 0;
    uint64_t created_ticks = 0;
  };
  uint64_t Enter(const RecordedCall& call, const Beginning& beginning);

  CallSlot& SlotOf(uint64_t call) const { return slots_[call & mask_]; }
  void Finish(uint64_t call, CallState state);
  bool ReadSlot(uint64_t call, const TickDates& dates, LoggedCall* read) const;
  std::byte* Reserve(size_t bytes);
  void WriteDump() const;

  const CallLogOwner owner_;
  const std::string dump_prefix_;
  const uint64_t mask_;
  // One of the two holds the ring.
  std::optional<SharedMapping> shared_;
  std::unique_ptr<CallSlot[]> own_;
  CallRingHeader* header_;
  CallSlot* slots_;
  uint32_t last_message_ = 0;
};

}  // namespace trnccl
