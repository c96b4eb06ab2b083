// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/narrow_float.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace trnccl::perf {
namespace {

// The exponent of the smallest normal number, which subnormals share.
int SmallestExponent(const FloatFormat& format) {
  return 2 - (1 << (format.exponent_bits - 1));
}

// 2 to the power of `exponent`, which a double can hold as a normal number.
double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// The exponent of a positive double; -1023 for all that's too small to matter.
int ExponentOf(double magnitude) {
  return static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> 52) - 1023;
}

}  // namespace

uint32_t Encode(const FloatFormat& format, double value) {
  const int mantissa = format.mantissa_bits;
  const uint32_t sign =
      std::signbit(value) ? 1U << (format.exponent_bits + mantissa) : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const uint32_t all_exponent_bits = ((1U << format.exponent_bits) - 1)
                                     << mantissa;
  const uint32_t too_large = format.finite_only
                                 ? all_exponent_bits + (1U << mantissa) - 2
                                 : all_exponent_bits;
  const int smallest = SmallestExponent(format);
  const int exponent = std::max(ExponentOf(magnitude), smallest);
  if (exponent >= smallest + (1 << format.exponent_bits))
    return sign | too_large;
  // Whole steps of the last place. They include the leading one, so adding the
  // shifted exponent also carries a mantissa that was rounded up to the next.
  const double steps =
      std::nearbyint(magnitude * PowerOfTwo(mantissa - exponent));
  const uint32_t code =
      static_cast<uint32_t>(steps) +
      (static_cast<uint32_t>(exponent - smallest) << mantissa);
  return sign | std::min(code, too_large);
}

double Decode(const FloatFormat& format, uint32_t bits) {
  const int mantissa = format.mantissa_bits;
  const uint32_t exponent_mask = (1U << format.exponent_bits) - 1;
  const uint32_t exponent = (bits >> mantissa) & exponent_mask;
  uint32_t steps = bits & ((1U << mantissa) - 1);
  if (exponent != 0) steps += 1U << mantissa;
  const int shift = std::max<int>(static_cast<int>(exponent) - 1, 0);
  const double magnitude =
      steps * PowerOfTwo(SmallestExponent(format) + shift - mantissa);
  const bool negative = (bits >> (format.exponent_bits + mantissa)) & 1;
  return negative ? -magnitude : magnitude;
}

}  // namespace trnccl::perf
