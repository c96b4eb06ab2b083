// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What's wrong with a call, found before anything is sent: nothing has changed
// when it's refused.
//
// Thread rule: pure functions.
//
//   RETURN_IF_ERROR(CheckCall(call, membership));
#pragma once

#include <cstddef>

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

}  // namespace trnccl
