// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The 8- and 16-bit floats, exhaustively: every conversion, every pair of fp8.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ccl/kernels/fold.h"
#include "ccl/kernels/fold_oracle.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"

namespace trnccl {
namespace {

constexpr DataType kNarrowTypes[] = {DataType::kFloat16, DataType::kBFloat16,
                                     DataType::kFloat8E4M3,
                                     DataType::kFloat8E5M2};
constexpr ReduceOp kFloatOps[] = {ReduceOp::kSum, ReduceOp::kProd,
                                  ReduceOp::kMin, ReduceOp::kMax,
                                  ReduceOp::kAvg, ReduceOp::kPremulSum};

// Folds on every instruction set and compares with the scalar rule.
void ExpectTheRule(const FoldSpec& spec,
                   const std::vector<FoldOperand>& operands, size_t count,
                   DataType result_type) {
  std::vector<uint8_t> output(count * ElementBytes(result_type));
  void* const results[] = {output.data()};
  const FoldCall call = {operands, results, count, true,
                         result_type != spec.type};
  const std::vector<uint8_t> expected = ExpectedFold(spec, call);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    MakeFolder(spec).value().Fold(call);
    EXPECT_EQ(FirstDifference(result_type, expected, output.data()), "")
        << Name(spec.op) << " of " << Name(spec.type) << " on "
        << hwy::TargetName(target);
  }
  hwy::SetSupportedTargetsForTest(0);
}

std::vector<uint8_t> EveryCode(DataType type) {
  std::vector<uint8_t> bytes;
  const bool is_byte = ElementBytes(type) == 1;
  for (int code = 0; code < (is_byte ? 0x100 : 0x10000); ++code) {
    bytes.push_back(static_cast<uint8_t>(code));
    if (!is_byte) bytes.push_back(static_cast<uint8_t>(code >> 8));
  }
  return bytes;
}

TEST(NarrowFloat, EveryCodeDecodesToItsValue) {
  for (const DataType type : kNarrowTypes) {
    const std::vector<uint8_t> codes = EveryCode(type);
    ExpectTheRule({.type = type}, {{codes.data()}},
                  codes.size() / ElementBytes(type), DataType::kFloat32);
  }
}

TEST(NarrowFloat, CopiesKeepEveryBit) {
  for (const DataType type : kNarrowTypes) {
    const std::vector<uint8_t> codes = EveryCode(type);
    std::vector<uint8_t> output(codes.size());
    const FoldOperand operands[] = {{codes.data(), true}};
    void* const results[] = {output.data()};
    const Folder folder = MakeFolder({.type = type}).value();
    folder.Fold({operands, results, codes.size() / ElementBytes(type), true});
    EXPECT_EQ(output, codes) << Name(type);
  }
}

TEST(NarrowFloat, Float32RoundsToNearestEven) {
  // All upper halves with lower halves at, just below and just above what
  // decides a rounding in any of the formats.
  std::vector<uint32_t> bits;
  for (uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const uint32_t lower : {0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x2000,
                                 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff})
      bits.push_back(upper << 16 | lower);
  for (const DataType type : kNarrowTypes)
    ExpectTheRule({.type = type}, {{bits.data(), true, true}}, bits.size(),
                  type);
}

TEST(NarrowFloat, EveryPairOfFp8FoldsByTheRule) {
  std::vector<uint8_t> left;
  std::vector<uint8_t> right;
  for (int pair = 0; pair < 0x10000; ++pair) {
    left.push_back(static_cast<uint8_t>(pair));
    right.push_back(static_cast<uint8_t>(pair >> 8));
  }
  for (const DataType type : {DataType::kFloat8E4M3, DataType::kFloat8E5M2})
    for (const ReduceOp op : kFloatOps)
      ExpectTheRule(
          {.type = type, .op = op, .factor = {.real = 0.7}, .ranks = 3},
          {{left.data()}, {right.data(), true}}, left.size(), type);
}

TEST(NarrowFloat, PairsOf16BitsSumByTheRule) {
  // Every code with partners that share all of its exponent, some or none.
  std::vector<uint16_t> left;
  std::vector<uint16_t> right;
  for (uint32_t round = 0; round < 64; ++round)
    for (uint32_t code = 0; code < 0x10000; ++code) {
      left.push_back(static_cast<uint16_t>(code));
      right.push_back(static_cast<uint16_t>(code ^ round * 0x421));
    }
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16})
    ExpectTheRule({.type = type}, {{left.data()}, {right.data()}}, left.size(),
                  type);
}

TEST(NarrowFloat, OverflowSaturatesE4M3AndIsInfiniteInE5M2) {
  const float values[] = {448, 464, 465, 1e30f, -1e30f, 61439, 61440};
  const FoldOperand operands[] = {{values, true, true}};
  uint8_t output[7];
  void* const results[] = {output};
  MakeFolder({.type = DataType::kFloat8E4M3})
      .value()
      .Fold({operands, results, 5});
  EXPECT_EQ(std::vector<int>(output, output + 5),
            std::vector<int>({0x7e, 0x7e, 0x7e, 0x7e, 0xfe}));
  MakeFolder({.type = DataType::kFloat8E5M2})
      .value()
      .Fold({operands, results, 7});
  EXPECT_EQ(std::vector<int>(output + 3, output + 7),
            std::vector<int>({0x7c, 0xfc, 0x7b, 0x7c}));
}

}  // namespace
}  // namespace trnccl
