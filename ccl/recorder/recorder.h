// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The last calls of a communicator, always on: a ring of one cache line a call,
// stamped by the time-stamp counter. Recording takes no lock, clock call or
// allocation. Dump() renders what PyTorch's flight-recorder analyser reads.
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
#include <string>

#include "ccl/base/clock.h"
#include "ccl/base/membership.h"
#include "ccl/base/types.h"

namespace trnccl {

// A collective, or one of the two below.
enum class CallKind : uint8_t { kSend = 100, kReceive = 101 };
constexpr CallKind KindOf(Collective collective) {
  return static_cast<CallKind>(collective);
}

struct RecordedCall {
  CallKind kind = KindOf(Collective::kBarrier);
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  uint64_t count = 0;  // as the caller gave it
  int32_t peer = -1;   // root of a collective, other side of a message
  int32_t tag = 0;     // of a message
};

class Recorder {
 public:
  struct Owner {
    Membership membership;
    std::string name;
    std::string description;
    int64_t timeout_ms = 0;
  };

  // Keeps the last `calls`, rounded up to a power of two.
  Recorder(Owner owner, uint32_t calls);

  // Returns what names the call in the functions below. They ignore a call that
  // later ones have pushed out of the ring.
  uint64_t Schedule(const RecordedCall& call);
  // Both at once.
  uint64_t Begin(const RecordedCall& call, const char* algorithm);
  // `algorithm` must outlive the recorder; null if there's none.
  void Start(uint64_t call, const char* algorithm);
  void Complete(uint64_t call) { Finish(call, State::kCompleted); }
  void Fail(uint64_t call) { Finish(call, State::kFailed); }

  // JSON, oldest call first. A failed call keeps the state that it had reached,
  // as the analyser knows no other, and is marked besides.
  std::string Dump() const;

 private:
  enum class State : uint8_t { kScheduled, kStarted, kCompleted, kFailed };

  // Written by the one recording thread. A reader takes a slot for whole if the
  // stamp is the same before and after; 0 and odd stamps aren't.
  struct alignas(64) Slot {
    std::atomic<uint64_t> stamp{0};  // 2 * (call + 1); odd while overwritten
    std::atomic<uint64_t> created_ticks{0};
    std::atomic<uint64_t> started_ticks{0};   // 0: not yet
    std::atomic<uint64_t> finished_ticks{0};  // 0: not yet
    std::atomic<uint64_t> count{0};
    std::atomic<const char*> algorithm{nullptr};
    std::atomic<int32_t> peer{0};
    std::atomic<int32_t> tag{0};
    std::atomic<uint32_t> sequence{0};  // among its collectives, or messages
    std::atomic<CallKind> kind{};
    std::atomic<DataType> type{};
    std::atomic<ReduceOp> op{};
    std::atomic<State> state{};
  };
  static_assert(sizeof(Slot) == 64);

  struct Entry;  // a plain copy of a slot

  // How far a call is when it's entered.
  struct Beginning {
    State state = State::kScheduled;
    uint64_t started_ticks = 0;
    uint64_t created_ticks = 0;
    const char* algorithm = nullptr;
  };
  uint64_t Enter(const RecordedCall& call, const Beginning& beginning);

  Slot& SlotOf(uint64_t call) const { return slots_[call & mask_]; }
  void Finish(uint64_t call, State state);
  bool ReadSlot(uint64_t call, Entry* entry) const;

  const Owner owner_;
  const uint64_t mask_;
  const TickAnchor first_anchor_;
  std::unique_ptr<Slot[]> slots_;
  std::atomic<uint64_t> calls_{0};
  // Of the collectives, as PyTorch counts them: from 1.
  std::atomic<uint32_t> last_scheduled_{0};
  std::atomic<uint32_t> last_started_{0};
  std::atomic<uint32_t> last_completed_{0};
  uint32_t last_message_ = 0;
};

}  // namespace trnccl
