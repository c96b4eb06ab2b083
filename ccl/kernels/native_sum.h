// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Sums of two arrays of 16-bit floats by instructions of newer processors that
// Highway has no target for. The bits are those of the rules in README.md; the
// folds work without, only slower. Nothing but whole units of plain pairs, and
// on x86-64 alone.
//
// Thread rule: pure functions on the caller's memory; any thread.
//
//   if (HasNativeSum(DataType::kFloat16))
//     NativeSum(DataType::kFloat16, {input, peer_slice, output, nullptr},
//               bytes - bytes % kNativeSumUnit);
#pragma once

#include <cstddef>
#include <cstdint>

#include "ccl/base/types.h"

namespace trnccl {

inline constexpr size_t kNativeSumUnit = 64;  // bytes

// A result may be the very same array as an operand, and overlaps none
// otherwise.
struct PairArrays {
  const uint8_t* first;
  const uint8_t* second;
  uint8_t* result;
  uint8_t* copy;  // a second result, or null
};

// Whether this processor has something better than Highway for the type.
bool HasNativeSum(DataType type);

// Sums that many bytes, a multiple of kNativeSumUnit. For types that have it.
void NativeSum(DataType type, const PairArrays& arrays, size_t bytes);

}  // namespace trnccl
