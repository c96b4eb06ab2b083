// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Memory for tensors that peers on the machine can map: calls on it run without
// a copy between processes. What's given back is kept for the next tensor.
//
// Thread rule: thread-safe.
//
//   c10::DataPtr memory = SharedAllocator()->allocate(bytes);
#pragma once

#include <cstddef>
#include <memory>

#include "bindings/torch/torch_names.h"

namespace trnccl::torch_binding {

std::shared_ptr<c10::Allocator> SharedAllocator();

struct SharedMemoryUse {
  size_t used_bytes = 0;  // by tensors
  size_t kept_bytes = 0;  // for the next tensors
};
// Of the process.
SharedMemoryUse SharedMemoryInUse();

}  // namespace trnccl::torch_binding
