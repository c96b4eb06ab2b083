// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/types.h"

#include <array>
#include <cstring>
#include <optional>

#include "bindings/torch/errors.h"

namespace trnccl::torch_binding {
namespace {

std::optional<trncclDataType_t> TypeOf(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return trncclInt8;
    case at::kByte:
      return trncclUint8;
    case at::kShort:
      return trncclInt16;
    case at::kUInt16:
      return trncclUint16;
    case at::kInt:
      return trncclInt32;
    case at::kUInt32:
      return trncclUint32;
    case at::kLong:
      return trncclInt64;
    case at::kUInt64:
      return trncclUint64;
    case at::kHalf:
      return trncclFloat16;
    case at::kBFloat16:
      return trncclBfloat16;
    case at::kFloat:
      return trncclFloat32;
    case at::kDouble:
      return trncclFloat64;
    case at::kFloat8_e4m3fn:
      return trncclFloat8e4m3;
    case at::kFloat8_e5m2:
      return trncclFloat8e5m2;
    case at::kBool:
      return trncclBool;
    case at::kComplexFloat:
      return trncclComplex64;
    case at::kComplexDouble:
      return trncclComplex128;
    default:
      return std::nullopt;
  }
}

std::optional<trncclRedOp_t> PlainOperator(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return trncclSum;
    case c10d::ReduceOp::AVG:
      return trncclAvg;
    case c10d::ReduceOp::PRODUCT:
      return trncclProd;
    case c10d::ReduceOp::MIN:
      return trncclMin;
    case c10d::ReduceOp::MAX:
      return trncclMax;
    case c10d::ReduceOp::BAND:
      return trncclBand;
    case c10d::ReduceOp::BOR:
      return trncclBor;
    case c10d::ReduceOp::BXOR:
      return trncclBxor;
    default:
      return std::nullopt;
  }
}

// One element of the type, as the tensors of the call hold it.
at::Tensor FactorOf(const c10d::ReduceOp& op, at::ScalarType type) {
  const auto* supplement =
      dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement != nullptr,
                    "a premultiplied sum needs a factor: make the operator "
                    "with torch.distributed._make_nccl_premul_sum");
  if (supplement->tensor_factor.defined())
    return supplement->tensor_factor.to(at::kCPU, type).contiguous();
  return at::full({1}, supplement->double_factor,
                  at::TensorOptions().dtype(at::kDouble))
      .to(type);
}

}  // namespace

trncclDataType_t TypeOfReduced(at::ScalarType type) {
  const auto known = TypeOf(type);
  TORCH_CHECK_NOT_IMPLEMENTED(known.has_value(), "trnccl: tensors of ", type,
                              " can be moved, but not reduced");
  return *known;
}

ElementType TypeOfMoved(at::ScalarType type) {
  if (const auto known = TypeOf(type)) return {.type = *known};
  return {.type = trncclUint8,
          .per_element = static_cast<int64_t>(c10::elementSize(type))};
}

size_t Counted(int64_t elements, const ElementType& type) {
  return static_cast<size_t>(elements * type.per_element);
}

std::vector<size_t> Counted(const std::vector<int64_t>& elements,
                            const ElementType& type) {
  std::vector<size_t> counts;
  for (const int64_t count : elements) counts.push_back(Counted(count, type));
  return counts;
}

void CheckSameType(const char* call, at::ScalarType output,
                   at::ScalarType input) {
  TORCH_CHECK_VALUE(output == input, "trnccl: ", call, ": the output is of ",
                    output, ", the input of ", input);
}

Operator::Operator(const c10d::ReduceOp& op, at::ScalarType type,
                   trncclComm_t comm)
    : comm_(comm) {
  if (const auto plain = PlainOperator(op.op_)) {
    op_ = *plain;
    return;
  }
  TORCH_CHECK_VALUE(op.op_ == c10d::ReduceOp::PREMUL_SUM,
                    "trnccl: unknown reduce operator ",
                    static_cast<int>(op.op_));
  const at::Tensor factor = FactorOf(op, type);
  Check(trncclRedOpCreatePreMulSum(&op_, factor.const_data_ptr(),
                                   TypeOfReduced(type), comm));
  made_ = true;
}

Operator::~Operator() {
  if (made_) trncclRedOpDestroy(op_, comm_);
}

}  // namespace trnccl::torch_binding
