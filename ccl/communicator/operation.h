// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// One call on its way: what was asked for, and what became of it. A blocking
// call's lives on the caller's stack; an asynchronous one's belongs to its
// request and to the communicator until both have let go.
//
// Thread rule: the fields are the communicator's from submission until `done`,
// which any thread may look at; then everyone may read them.
//
//   Operation operation;
//   operation.call = {.collective = Collective::kBarrier};
//   absl::Status status = communicator.Run(&operation);
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "ccl/executor/call.h"
#include "ccl/point_to_point/transfer.h"

namespace trnccl {

// What a receive got; laid out as the C interface's.
struct ReceiveStatus {
  int source = 0;
  int64_t tag = 0;
  size_t count = 0;
};

// Whom to tell that a call is complete.
struct Notice {
  void (*notify)(void* context) = nullptr;
  void* context = nullptr;
};

struct Operation {
  enum class Kind : uint8_t { kCollective, kTransfer };

  Kind kind = Kind::kCollective;
  CollectiveCall call;                      // kCollective
  Transfer transfer;                        // kTransfer
  ReceiveStatus* receive_status = nullptr;  // filled at completion
  int64_t timeout_ms = 0;                   // 0: the communicator's
  bool on_heap = false;                     // counted by `references`

  // Copies the arrays of a v-variant, whose caller keeps them only during the
  // call itself.
  void OwnCounts();

  // Of an operation on the heap.
  void Release() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // Has `notice` told once it's complete; false if it's complete already. Owns
  // the notice then.
  bool SetNotice(Notice* notice) {
    Notice* none = nullptr;
    return noticed.compare_exchange_strong(none, notice);
  }
  // No notice from now on. What was set, or null.
  Notice* TakeNotice() { return noticed.exchange(&kTaken); }

  std::atomic<bool> done = false;
  absl::Status status;  // once done
  std::atomic<int> references = 1;

  // The communicator's own.
  Operation* next = nullptr;
  bool asynchronous = false;
  uint32_t sequence = 0;
  std::optional<uint64_t> record;  // the recorder's, once it was taken up
  int64_t started_ns = 0;          // when its deadline began to run; 0: not yet
  std::vector<int64_t> counts;
  static inline Notice kTaken;
  std::atomic<Notice*> noticed = nullptr;
};

}  // namespace trnccl
