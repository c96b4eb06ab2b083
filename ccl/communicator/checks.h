// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What's wrong with a call, found before anything is sent: nothing has changed
// when it's refused.
//
// Thread rule: pure functions; a checker is thread-compatible.
//
//   RETURN_IF_ERROR(CheckCall(call, membership));
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "ccl/base/membership.h"
#include "ccl/executor/call.h"

namespace trnccl {

// InvalidArgument that names the rank, the call, and what to change: unknown
// type or operator, a pair without meaning, a root out of range, a null buffer,
// buffers that overlap other than in place, sizes beyond the address space.
absl::Status CheckCall(const CollectiveCall& call, const Membership& me);

// From the start of each buffer to the end of its last block, of a call that
// has passed the check.
struct BufferSizes {
  size_t input_bytes = 0;
  size_t output_bytes = 0;
};
BufferSizes SizesOf(const CollectiveCall& call, const Membership& me);

struct CallBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

// Which buffers a call of one shape may have, apart from its kind and counts.
class BufferRule {
 public:
  // Of an even call that has passed the check.
  static BufferRule Of(const CollectiveCall& call, const Membership& me);

  // False may also mean that a closer look is needed.
  bool Allows(const CallBuffers& buffers) const {
    if ((buffers.input == nullptr && bytes_.input_bytes > 0) ||
        (buffers.output == nullptr && bytes_.output_bytes > 0))
      return false;
    const auto input = reinterpret_cast<uintptr_t>(buffers.input);
    const auto output = reinterpret_cast<uintptr_t>(buffers.output);
    return input + bytes_.input_bytes <= output ||
           output + bytes_.output_bytes <= input ||
           (in_place_.has_value() &&
            output == input + static_cast<uintptr_t>(*in_place_));
  }

 private:
  BufferSizes bytes_;
  std::optional<std::ptrdiff_t> in_place_;  // output - input, in bytes
};

// CheckCall() for one who makes the same call again and again: remembers what
// it found of the last shape, and then looks at the buffers alone.
class CallChecker {
 public:
  explicit CallChecker(const Membership& me) : me_(me) {}

  absl::Status Check(const CollectiveCall& call) {
    if (ShapeOf(call) == last_ && rule_.Allows({call.input, call.output}))
        [[likely]]
      return absl::OkStatus();
    return CheckAnew(call);
  }

 private:
  struct Shape {
    Collective collective = Collective::kBarrier;
    DataType type = DataType::kUint8;
    ReduceOp op = ReduceOp::kSum;
    int root = -1;
    int64_t count = -1;

    bool operator==(const Shape&) const = default;
  };
  static Shape ShapeOf(const CollectiveCall& call) {
    return {call.collective, call.type, call.op, call.root,
            call.output_counts.even_count};
  }
  absl::Status CheckAnew(const CollectiveCall& call);

  Membership me_;
  Shape last_;  // even, and passed
  BufferRule rule_;
};

}  // namespace trnccl
