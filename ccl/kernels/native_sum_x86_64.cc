// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <cpuid.h>
#include <immintrin.h>

#include "ccl/kernels/native_sum.h"

namespace trnccl {
namespace {

// The processor rounds once. Rounding the sum of two float16 to float32 first
// changes nothing: 24 bits are twice 11 and two more.
template <size_t kResults>
__attribute__((target("avx512f"))) void SumFloat16(const PairArrays& arrays,
                                                   size_t bytes) {
  const auto [first, second, result, copy] = arrays;
  for (size_t i = 0; i < bytes; i += kNativeSumUnit) {
    const __m512i a = _mm512_loadu_si512(first + i);
    const __m512i b = _mm512_loadu_si512(second + i);
    // Clang 14 has the instruction, but no intrinsic for some functions only.
    __m512i sum;
    asm("vaddph %2, %1, %0" : "=v"(sum) : "v"(a), "v"(b));
    _mm512_storeu_si512(result + i, sum);
    if constexpr (kResults == 2) _mm512_storeu_si512(copy + i, sum);
  }
}

// The float32 sums of the even and of the odd elements are cut into their upper
// halves, in the order of the elements, and their lower halves, which decide
// whether the upper ones are rounded up: above a half, or at a half of an odd
// one. NaN is never rounded, since a sum of bfloat16 that is NaN has no bit
// below bfloat16's own.
template <size_t kResults>
__attribute__((target("avx512bw,avx512vbmi2"))) void SumBFloat16(
    const PairArrays& arrays, size_t bytes) {
  const auto [first, second, result, copy] = arrays;
  constexpr __mmask32 kEven = 0x55555555;
  const __m512i odd_bits = _mm512_set1_epi32(-0x10000);
  const __m512i one = _mm512_set1_epi16(1);
  const __m512i half = _mm512_set1_epi16(INT16_MIN);
  for (size_t i = 0; i < bytes; i += kNativeSumUnit) {
    const __m512i a = _mm512_loadu_si512(first + i);
    const __m512i b = _mm512_loadu_si512(second + i);
    const __m512i even = _mm512_castps_si512(
        _mm512_add_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                      _mm512_castsi512_ps(_mm512_slli_epi32(b, 16))));
    const __m512i odd = _mm512_castps_si512(
        _mm512_add_ps(_mm512_castsi512_ps(_mm512_and_si512(a, odd_bits)),
                      _mm512_castsi512_ps(_mm512_and_si512(b, odd_bits))));
    // Per 32 bits: the odd sum's lower half above the even sum's upper half.
    const __m512i middle = _mm512_shrdi_epi32(even, odd, 16);
    const __m512i upper = _mm512_mask_blend_epi16(kEven, odd, middle);
    const __m512i lower = _mm512_mask_blend_epi16(kEven, middle, even);
    const __m512i decider =
        _mm512_or_si512(lower, _mm512_and_si512(upper, one));
    const __mmask32 up = _mm512_cmpgt_epu16_mask(decider, half);
    const __m512i sum = _mm512_mask_add_epi16(upper, up, upper, one);
    _mm512_storeu_si512(result + i, sum);
    if constexpr (kResults == 2) _mm512_storeu_si512(copy + i, sum);
  }
}

bool HasFloat16Arithmetic() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAvx512Fp16 = 1u << 23;
  return __builtin_cpu_supports("avx512f") &&
         __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kAvx512Fp16) != 0;
}

}  // namespace

bool HasNativeSum(DataType type) {
  switch (type) {
    case DataType::kFloat16: {
      static const bool has = HasFloat16Arithmetic();
      return has;
    }
    case DataType::kBFloat16:
      return __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vbmi2");
    default:
      return false;
  }
}

void NativeSum(DataType type, const PairArrays& arrays, size_t bytes) {
  const bool two = arrays.copy != nullptr;
  if (type == DataType::kFloat16)
    (two ? SumFloat16<2> : SumFloat16<1>)(arrays, bytes);
  else
    (two ? SumBFloat16<2> : SumBFloat16<1>)(arrays, bytes);
}

}  // namespace trnccl
