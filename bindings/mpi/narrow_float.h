// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// 8- and 16-bit floating point as integers of their bits, for the benchmarks'
// check: written for clarity, and apart from the library's kernels so that one
// tests the other.
//
// Thread rule: pure functions.
//
//   uint32_t bits = Encode(kBfloat16Format, 1.5);
#pragma once

#include <cstdint>

namespace trnccl::perf {

struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  bool finite_only;  // all exponent bits set is a number too: e4m3fn
};

inline constexpr FloatFormat kFloat16Format = {5, 10, false};
inline constexpr FloatFormat kBfloat16Format = {8, 7, false};
inline constexpr FloatFormat kFloat8e4m3Format = {4, 3, true};
inline constexpr FloatFormat kFloat8e5m2Format = {5, 2, false};

// Rounds to nearest, ties to even. Too large: the largest value where the
// format is finite_only, else infinity. Not for NaN.
uint32_t Encode(const FloatFormat& format, double value);

// Exact. Not for infinity and NaN.
double Decode(const FloatFormat& format, uint32_t bits);

}  // namespace trnccl::perf
