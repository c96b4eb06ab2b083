// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/types.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace trnccl::perf {
namespace {

using enum TypeKind;

// In the order of trncclDataType_t.
constexpr auto kTypes = std::to_array<TypeRow>({
    {"int8", "int8", trncclInt8, kSigned, 1},
    {"uint8", "uint8", trncclUint8, kUnsigned, 1},
    {"int16", "int16", trncclInt16, kSigned, 2},
    {"uint16", "uint16", trncclUint16, kUnsigned, 2},
    {"int32", "int32", trncclInt32, kSigned, 4},
    {"uint32", "uint32", trncclUint32, kUnsigned, 4},
    {"int64", "int64", trncclInt64, kSigned, 8},
    {"uint64", "uint64", trncclUint64, kUnsigned, 8},
    {"half", "float16", trncclFloat16, kFloat, 2},
    {"bfloat16", "bfloat16", trncclBfloat16, kFloat, 2},
    {"float", "float32", trncclFloat32, kFloat, 4},
    {"double", "float64", trncclFloat64, kFloat, 8},
    {"f8e4m3", "float8e4m3", trncclFloat8e4m3, kFloat, 1},
    {"f8e5m2", "float8e5m2", trncclFloat8e5m2, kFloat, 1},
    {"bool", "bool", trncclBool, kBool, 1},
    {"complex64", "complex64", trncclComplex64, kComplex, 8},
    {"complex128", "complex128", trncclComplex128, kComplex, 16},
});

constexpr auto kOperators = std::to_array<OperatorRow>({
    {"sum", Operator::kSum},
    {"prod", Operator::kProd},
    {"max", Operator::kMax},
    {"min", Operator::kMin},
    {"avg", Operator::kAvg},
    {"mulsum", Operator::kMulSum},
    {"band", Operator::kBand},
    {"bor", Operator::kBor},
    {"bxor", Operator::kBxor},
});

}  // namespace

std::span<const TypeRow> AllTypes() { return kTypes; }
std::span<const OperatorRow> AllOperators() { return kOperators; }

const TypeRow* FindType(std::string_view name) {
  const auto row = std::ranges::find_if(kTypes, [&](const TypeRow& candidate) {
    return candidate.name == name || candidate.other_name == name;
  });
  return row == kTypes.end() ? nullptr : &*row;
}

const OperatorRow* FindOperator(std::string_view name) {
  const auto row = std::ranges::find(kOperators, name, &OperatorRow::name);
  return row == kOperators.end() ? nullptr : &*row;
}

const TypeRow& RowOf(trncclDataType_t type) { return kTypes[type]; }

std::string_view Name(Operator op) {
  const auto row = std::ranges::find(kOperators, op, &OperatorRow::op);
  return row == kOperators.end() ? "none" : row->name;
}

bool HasMeaning(trncclDataType_t type, Operator op) {
  const TypeKind kind = RowOf(type).kind;
  switch (op) {
    case Operator::kNone:
    case Operator::kSum:
      return true;
    case Operator::kProd:
    case Operator::kMin:
    case Operator::kMax:
      return kind != kComplex;
    case Operator::kAvg:
    case Operator::kMulSum:
      return kind != kBool;
    case Operator::kBand:
    case Operator::kBor:
    case Operator::kBxor:
      return kind != kFloat && kind != kComplex;
  }
  return false;
}

trncclRedOp_t BuiltIn(Operator op) {
  switch (op) {
    case Operator::kSum:
      return trncclSum;
    case Operator::kProd:
      return trncclProd;
    case Operator::kMin:
      return trncclMin;
    case Operator::kMax:
      return trncclMax;
    case Operator::kAvg:
      return trncclAvg;
    case Operator::kBand:
      return trncclBand;
    case Operator::kBor:
      return trncclBor;
    case Operator::kBxor:
      return trncclBxor;
    case Operator::kNone:
    case Operator::kMulSum:
      break;
  }
  std::abort();
}

}  // namespace trnccl::perf
