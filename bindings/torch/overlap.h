// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Whether tensors share memory: exact, whatever their layouts, and quick where
// they're views that slicing makes.
//
// Thread rule: pure functions.
//
//   SharesMemory(matrix.select(1, 0), matrix.select(1, 1));  // false: columns
#pragma once

#include <vector>

#include "bindings/torch/torch_names.h"

namespace trnccl::torch_binding {

// Whether two elements of the tensor do.
bool SharesMemory(const at::Tensor& tensor);
// Whether an element of one tensor and one of the other do.
bool SharesMemory(const at::Tensor& one, const at::Tensor& other);
// Whether any two of the tensors do.
bool AnyShareMemory(const std::vector<at::Tensor>& tensors);

}  // namespace trnccl::torch_binding
