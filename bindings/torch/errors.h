// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The library's results as PyTorch's exceptions: ValueError for bad arguments,
// NotImplementedError never from here, DistBackendError (a RuntimeError) for
// the rest. The text is the library's.
//
// Thread rule: thread-safe.
//
//   Check(trncclBarrier(comm, nullptr));
#pragma once

#include <exception>
#include <string>

#include "ccl/trnccl.h"

namespace trnccl::torch_binding {

// Throws unless it's trncclSuccess. The text is that of the thread's last call.
void Check(trncclResult_t result);

// What Check() would throw.
std::exception_ptr ExceptionOf(trncclResult_t result, const std::string& text);

}  // namespace trnccl::torch_binding
