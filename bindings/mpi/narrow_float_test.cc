// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/narrow_float.h"

#include <cmath>

#include "gtest/gtest.h"

namespace trnccl::perf {
namespace {

constexpr FloatFormat kFormats[] = {kFloat16Format, kBfloat16Format,
                                    kFloat8e4m3Format, kFloat8e5m2Format};

uint32_t LargestCode(const FloatFormat& format) {
  const uint32_t exponent = (1U << format.exponent_bits) - 1;
  const uint32_t infinity = exponent << format.mantissa_bits;
  return format.finite_only ? infinity + (1U << format.mantissa_bits) - 2
                            : infinity - 1;
}

TEST(NarrowFloat, EncodesWhatItDecodes) {
  for (const FloatFormat& format : kFormats) {
    const uint32_t sign = 1U << (format.exponent_bits + format.mantissa_bits);
    for (uint32_t code = 0; code <= LargestCode(format); ++code) {
      EXPECT_EQ(Encode(format, Decode(format, code)), code);
      EXPECT_EQ(Encode(format, Decode(format, sign | code)), sign | code);
    }
  }
}

TEST(NarrowFloat, RoundsToNearestAndTiesToEven) {
  for (const FloatFormat& format : kFormats) {
    for (uint32_t code = 0; code < LargestCode(format); ++code) {
      const double low = Decode(format, code);
      const double high = Decode(format, code + 1);
      const double middle = low + (high - low) / 2;
      EXPECT_LT(low, high);
      EXPECT_EQ(Encode(format, middle), code + code % 2);
      EXPECT_EQ(Encode(format, std::nextafter(middle, low)), code);
      EXPECT_EQ(Encode(format, std::nextafter(middle, high)), code + 1);
    }
  }
}

TEST(NarrowFloat, KnowsTheFormatsLimits) {
  EXPECT_EQ(Decode(kFloat16Format, 0x7bff), 65504);
  EXPECT_EQ(Decode(kBfloat16Format, 0x3f80), 1);
  EXPECT_EQ(Decode(kFloat8e4m3Format, 0x7e), 448);
  EXPECT_EQ(Decode(kFloat8e4m3Format, 0x01), std::ldexp(1, -9));
  EXPECT_EQ(Decode(kFloat8e5m2Format, 0x7b), 57344);
  EXPECT_EQ(Encode(kFloat16Format, 1e9), 0x7c00U);
  EXPECT_EQ(Encode(kFloat8e4m3Format, -1e300), 0xfeU);
  EXPECT_EQ(Encode(kFloat8e5m2Format, 1e9), 0x7cU);
}

}  // namespace
}  // namespace trnccl::perf
