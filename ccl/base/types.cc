// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/base/types.h"

#include <array>

namespace trnccl {
namespace {

struct TypeRow {
  std::string_view name;
  size_t bytes;
};

constexpr std::array<TypeRow, kDataTypes> kTypeRows = {{
    {"int8", 1},
    {"uint8", 1},
    {"int16", 2},
    {"uint16", 2},
    {"int32", 4},
    {"uint32", 4},
    {"int64", 8},
    {"uint64", 8},
    {"float16", 2},
    {"bfloat16", 2},
    {"float32", 4},
    {"float64", 8},
    {"float8_e4m3", 1},
    {"float8_e5m2", 1},
    {"bool", 1},
    {"complex64", 8},
    {"complex128", 16},
}};

constexpr std::array<std::string_view, kReduceOps> kOpNames = {
    "sum", "prod", "min", "max", "avg", "premul_sum", "band", "bor", "bxor"};

constexpr std::array<std::string_view, kCollectives> kCollectiveNames = {
    "all_reduce",   "broadcast",      "reduce",           "all_gather",
    "all_gather_v", "reduce_scatter", "reduce_scatter_v", "all_to_all",
    "all_to_all_v", "gather",         "scatter",          "barrier"};

template <typename Enum, size_t kSize>
std::string_view NameIn(const std::array<std::string_view, kSize>& names,
                        Enum value) {
  const size_t index = static_cast<size_t>(value);
  return index < kSize ? names[index] : "unknown";
}

}  // namespace

size_t ElementBytes(DataType type) {
  const size_t index = static_cast<size_t>(type);
  return index < kTypeRows.size() ? kTypeRows[index].bytes : 0;
}

std::string_view Name(DataType type) {
  const size_t index = static_cast<size_t>(type);
  return index < kTypeRows.size() ? kTypeRows[index].name : "unknown";
}

std::string_view Name(ReduceOp op) { return NameIn(kOpNames, op); }

std::string_view Name(Collective collective) {
  return NameIn(kCollectiveNames, collective);
}

bool IsNarrowFloat(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kBFloat16 ||
         type == DataType::kFloat8E4M3 || type == DataType::kFloat8E5M2;
}

}  // namespace trnccl
