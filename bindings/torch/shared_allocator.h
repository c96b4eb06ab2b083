// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Memory for tensors that peers on the machine can map: calls on it run without
// a copy between processes.
//
// Thread rule: thread-safe.
//
//   c10::DataPtr memory = SharedAllocator()->allocate(bytes);
#pragma once

#include <memory>

#include "bindings/torch/torch_names.h"

namespace trnccl::torch_binding {

std::shared_ptr<c10::Allocator> SharedAllocator();

}  // namespace trnccl::torch_binding
