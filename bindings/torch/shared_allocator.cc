// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/shared_allocator.h"

#include <cstring>

#include "bindings/torch/errors.h"
#include "ccl/trnccl.h"

namespace trnccl::torch_binding {
namespace {

void Free(void* pointer) { trncclMemFree(pointer); }

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* pointer = nullptr;
    if (bytes > 0) Check(trncclMemAlloc(&pointer, bytes));
    return {pointer, pointer, bytes > 0 ? &Free : &c10::detail::deleteNothing,
            c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* target, const void* source,
                 size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }
};

}  // namespace

std::shared_ptr<c10::Allocator> SharedAllocator() {
  static const auto allocator = std::make_shared<Allocator>();
  return allocator;
}

}  // namespace trnccl::torch_binding
