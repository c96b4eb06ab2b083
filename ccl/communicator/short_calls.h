// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The small calls that a communicator has made before, each ready to run again
// after one look-up: what was checked, chosen and compiled the first time. A
// training loop makes few different ones; one that doesn't fit pushes out
// another.
//
// Thread rule: thread-compatible; owned with its communicator.
//
//   if (const ShortCall* call = calls.Find(key)) ...
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "ccl/communicator/checks.h"
#include "ccl/executor/call.h"
#include "ccl/executor/short_program.h"
#include "ccl/kernels/fold.h"
#include "ccl/recorder/recorder.h"
#include "transports/transport.h"

namespace trnccl {

// What makes two calls alike, but for their buffers: the second and the third
// word of their fingerprints (ccl/executor/call.h).
struct ShortKey {
  uint64_t what = 0;
  uint64_t count = 0;

  bool operator==(const ShortKey&) const = default;
};

struct ShortCall {
  ShortKey key;
  CollectiveCall call;  // but for its buffers
  BufferRule buffers;
  ShortProgram program;
  Folder folder;      // reducing collectives
  Envelope envelope;  // with sequence 0
  RecordedCall recorded;
  const std::string_view* algorithm = nullptr;
};

class ShortCalls {
 public:
  // Null if it isn't among them.
  const ShortCall* Find(const ShortKey& key) const {
    const ShortCall* call = calls_[SlotOf(key)].get();
    return call != nullptr && call->key == key ? call : nullptr;
  }
  void Learn(ShortCall call);

 private:
  static constexpr size_t kCalls = 32;  // see SlotOf()

  static size_t SlotOf(const ShortKey& key) {
    // The top bits of the product depend on all of both words.
    return (key.what * 0x9e3779b97f4a7c15 ^ key.count * 0xc2b2ae3d27d4eb4f) >>
           59;
  }

  std::array<std::unique_ptr<const ShortCall>, kCalls> calls_;
};

}  // namespace trnccl
