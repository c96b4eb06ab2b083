// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The recorder's memory: a header that describes itself, and behind it a ring
// of one cache line a call. It lies in a mapping of its own with a name that
// /proc/PID/maps shows, so that `trnccl status` reads it from outside, even of
// a process that's stopped. Who reads it there trusts nothing in it
// (call_log.h); so a layout that changes gets a new version.
//
// Thread rule: one thread at a time writes; any may read meanwhile, by the
// stamps.
//
//   slot.stamp.store(2 * call + 1), ..., slot.stamp.store(2 * (call + 1));
#pragma once

#include <atomic>
#include <cstdint>

#include "ccl/base/types.h"

namespace trnccl {

// A collective, or one of the two below.
enum class CallKind : uint8_t { kSend = 100, kReceive = 101 };
constexpr CallKind KindOf(Collective collective) {
  return static_cast<CallKind>(collective);
}
constexpr bool IsMessage(CallKind kind) { return kind >= CallKind::kSend; }

enum class CallState : uint8_t { kScheduled, kStarted, kCompleted, kFailed };

inline constexpr char kRingName[] = "trnccl-calls";
inline constexpr uint64_t kRingMagic = 0x736c6c61636e7274;  // "trncalls"
inline constexpr uint32_t kRingVersion = 1;
inline constexpr uint32_t kMostRingCalls = 1 << 20;
inline constexpr uint16_t kMostAlgorithms = 64;

// A reader takes a slot for whole if the stamp is the same before and after; 0
// and odd stamps aren't.
struct alignas(64) CallSlot {
  std::atomic<uint64_t> stamp{0};  // 2 * (call + 1); odd while overwritten
  std::atomic<uint64_t> created_ticks{0};
  std::atomic<uint64_t> started_ticks{0};   // 0: not yet
  std::atomic<uint64_t> finished_ticks{0};  // 0: not yet
  std::atomic<uint64_t> count{0};
  std::atomic<int32_t> peer{0};
  std::atomic<int32_t> tag{0};
  std::atomic<uint32_t> sequence{0};   // among its collectives, or messages
  std::atomic<uint16_t> algorithm{0};  // in the header's table
  std::atomic<CallKind> kind{};
  std::atomic<DataType> type{};
  std::atomic<ReduceOp> op{};
  std::atomic<CallState> state{};
};
static_assert(sizeof(CallSlot) == 64);

// Texts end with 0 or with their array.
struct alignas(64) CallRingHeader {
  std::atomic<uint64_t> magic{0};  // set last
  uint32_t version = kRingVersion;
  uint32_t header_bytes = 0;
  uint32_t slot_bytes = sizeof(CallSlot);
  uint32_t slots = 0;   // a power of two
  uint32_t cookie = 0;  // alike on all ranks of the communicator
  int32_t rank = 0;
  int32_t ranks = 0;
  int64_t pid = 0;  // as the process knows itself
  int64_t timeout_ms = 0;
  uint64_t created_ticks = 0;
  int64_t created_ns = 0;  // of NowNs(), at the same moment
  char name[128] = {};
  char description[128] = {};
  char hostname[128] = {};
  // From 1 on; 0 stands for none. An entry is written before a slot names it.
  char algorithms[kMostAlgorithms][40] = {};

  alignas(64) std::atomic<uint64_t> calls{0};
  // Of the collectives, as PyTorch counts them: from 1.
  std::atomic<uint32_t> last_scheduled{0};
  std::atomic<uint32_t> last_started{0};
  std::atomic<uint32_t> last_completed{0};
  std::atomic<bool> failed{false};  // set once the cause is there
  char cause[2048] = {};
};

}  // namespace trnccl
