// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/errors.h"

#include "bindings/torch/torch_names.h"

namespace trnccl::torch_binding {
namespace {

[[noreturn]] void Throw(trncclResult_t result, const std::string& text) {
  if (result == trncclInvalidArgument) C10_THROW_ERROR(ValueError, text);
  C10_THROW_ERROR(DistBackendError, text);
}

}  // namespace

void Check(trncclResult_t result) {
  if (result == trncclSuccess) [[likely]]
    return;
  Throw(result, trncclGetLastError(nullptr));
}

std::exception_ptr ExceptionOf(trncclResult_t result, const std::string& text) {
  try {
    Throw(result, text);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace trnccl::torch_binding
