// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// PyTorch's types and operators in the library's terms.
//
// Thread rule: pure functions; an operator belongs to its communicator.
//
//   const ElementType type = TypeOfMoved(tensor.scalar_type());
//   const Operator sum(options.reduceOp, tensor.scalar_type(), comm);
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/torch/torch_names.h"
#include "ccl/trnccl.h"

namespace trnccl::torch_binding {

// As a call counts it: `per_element` of `type` make an element of a tensor.
struct ElementType {
  trncclDataType_t type = trncclUint8;
  int64_t per_element = 1;
};

// For calls that fold. NotImplementedError if the library has no such type.
trncclDataType_t TypeOfReduced(at::ScalarType type);
// For calls that only move data: any type travels, if need be as bytes.
ElementType TypeOfMoved(at::ScalarType type);

// Elements of tensors as the call counts them.
size_t Counted(int64_t elements, const ElementType& type);
std::vector<size_t> Counted(const std::vector<int64_t>& elements,
                            const ElementType& type);

// ValueError unless both are the same.
void CheckSameType(const char* call, at::ScalarType output,
                   at::ScalarType input);

// The operator of one call; a premultiplied sum is made for it.
class Operator {
 public:
  // NotImplementedError or ValueError where the pair has no meaning.
  Operator(const c10d::ReduceOp& op, at::ScalarType type, trncclComm_t comm);
  ~Operator();
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  trncclRedOp_t get() const { return op_; }

 private:
  trncclComm_t comm_;
  trncclRedOp_t op_ = trncclSum;
  bool made_ = false;
};

}  // namespace trnccl::torch_binding
