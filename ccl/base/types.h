// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The vocabulary that every package shares: what is computed, on which type of
// element, with which operator. No behaviour beyond names and sizes.
//
// Thread rule: plain values and pure functions.
//
//   size_t bytes = count * ElementBytes(DataType::kBFloat16);
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trnccl {

// The numbers are part of the C ABI (ccl/trnccl.h): append, never renumber.
enum class DataType : uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt16 = 2,
  kUint16 = 3,
  kInt32 = 4,
  kUint32 = 5,
  kInt64 = 6,
  kUint64 = 7,
  kFloat16 = 8,
  kBFloat16 = 9,
  kFloat32 = 10,
  kFloat64 = 11,
  kFloat8E4M3 = 12,  // e4m3fn: no infinity, largest value 448
  kFloat8E5M2 = 13,
  kBool = 14,
  kComplex64 = 15,   // two float32
  kComplex128 = 16,  // two float64
};
inline constexpr int kDataTypes = 17;

enum class ReduceOp : uint8_t {
  kSum = 0,
  kProd = 1,
  kMin = 2,
  kMax = 3,
  kAvg = 4,
  kPremulSum = 5,  // each rank's input is first multiplied by its own factor
  kBand = 6,
  kBor = 7,
  kBxor = 8,
};
inline constexpr int kReduceOps = 9;

enum class Collective : uint8_t {
  kAllReduce = 0,
  kBroadcast = 1,
  kReduce = 2,
  kAllGather = 3,
  kAllGatherV = 4,
  kReduceScatter = 5,
  kReduceScatterV = 6,
  kAllToAll = 7,
  kAllToAllV = 8,
  kGather = 9,
  kScatter = 10,
  kBarrier = 11,
};
inline constexpr int kCollectives = 12;

// Bytes of one element; 0 for a value that is no DataType.
size_t ElementBytes(DataType type);

// The names that users read and write: "float32", "sum", "all_reduce". An
// unknown value is named "unknown".
std::string_view Name(DataType type);
std::string_view Name(ReduceOp op);
std::string_view Name(Collective collective);

// True for float16, bfloat16 and both fp8: folds of these accumulate in
// float32, and strict determinism sends their partial sums as float32.
bool IsNarrowFloat(DataType type);

}  // namespace trnccl
