// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The benchmarks' vocabulary: element types and operators by the names that
// users of nccl-tests type and read, and which pairs have a meaning. The table
// is the benchmarks' own, so that it checks the library's.
//
// Thread rule: constant tables and pure functions.
//
//   const TypeRow* half = FindType("half");
//   if (HasMeaning(half->type, Operator::kAvg)) ...
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "ccl/trnccl.h"

namespace trnccl::perf {

enum class TypeKind { kSigned, kUnsigned, kFloat, kBool, kComplex };

struct TypeRow {
  std::string_view name;
  std::string_view other_name;  // the C API's, where it differs
  trncclDataType_t type;
  TypeKind kind;
  size_t bytes;
};

enum class Operator {
  kNone,  // of a collective that only moves data
  kSum,
  kProd,
  kMin,
  kMax,
  kAvg,
  kMulSum,  // premultiplied: by 1 on even ranks, by 2 on odd ones
  kBand,
  kBor,
  kBxor,
};

struct OperatorRow {
  std::string_view name;
  Operator op;
};

std::span<const TypeRow> AllTypes();
std::span<const OperatorRow> AllOperators();  // without kNone

// Null if there is no such name.
const TypeRow* FindType(std::string_view name);
const OperatorRow* FindOperator(std::string_view name);

const TypeRow& RowOf(trncclDataType_t type);
std::string_view Name(Operator op);

bool HasMeaning(trncclDataType_t type, Operator op);

// The C API's number of an operator that exists without being created: not for
// kNone and kMulSum.
trncclRedOp_t BuiltIn(Operator op);

// What rank `rank` multiplies by in kMulSum.
inline int MulSumFactor(int rank) { return rank % 2 == 0 ? 1 : 2; }

}  // namespace trnccl::perf
