// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/kernels/fold.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ccl/kernels/fold_oracle.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"

namespace trnccl {
namespace {

// Runs `body` on every instruction set that this machine has.
template <class Body>
void OnEveryTarget(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

void MakeAndFold(const FoldSpec& spec, const FoldCall& call) {
  MakeFolder(spec).value().Fold(call);
}

FoldSpec SpecOf(DataType type, ReduceOp op) {
  return {.type = type,
          .op = op,
          .factor = {.real = -1.7, .imaginary = 0.3, .integer = -5},
          .ranks = 3};
}

template <class Body>
void ForEachPair(const Body& body) {
  for (int type = 0; type < kDataTypes; ++type)
    for (int op = 0; op < kReduceOps; ++op)
      if (IsSupported(static_cast<DataType>(type), static_cast<ReduceOp>(op)))
        body(static_cast<DataType>(type), static_cast<ReduceOp>(op));
}

// Folds arrays of T in the order given, all raw, and finishes.
template <class T>
std::vector<T> Fold(const FoldSpec& spec,
                    const std::vector<std::vector<T>>& arrays) {
  std::vector<FoldOperand> operands;
  for (const std::vector<T>& array : arrays)
    operands.push_back({array.data(), true});
  std::vector<T> output(arrays[0].size());
  void* const results[] = {output.data()};
  MakeAndFold(spec, {operands, results, output.size(), true});
  return output;
}

TEST(Fold, EqualsTheScalarRuleForEveryPairCountAndTarget) {
  const uint64_t first_seed = std::random_device()();
  std::cout << "seed " << first_seed << "\n";
  OnEveryTarget([&] {
    uint64_t seed = first_seed;
    ForEachPair([&](DataType type, ReduceOp op) {
      for (const size_t operands : {1, 2, 3, 5, 8, 17})
        for (const size_t count : {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64,
                                   65, 127, 128, 200, 513}) {
          FoldSpec spec = SpecOf(type, op);
          spec.ranks = 1 + static_cast<int64_t>(seed % 9);
          const std::string problem =
              CheckRandomFold({spec, operands, count, ++seed}, MakeAndFold);
          ASSERT_EQ(problem, "")
              << Name(op) << " of " << count << " " << Name(type) << " from "
              << operands << " operands, seed " << seed;
        }
    });
  });
}

TEST(Fold, TakesSixtyFourOperands) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16})
    EXPECT_EQ(CheckRandomFold({SpecOf(type, ReduceOp::kSum), 64, 1000, 7},
                              MakeAndFold),
              "");
}

TEST(Fold, AveragesIntegersTowardsZero) {
  OnEveryTarget([] {
    for (int64_t ranks = 1; ranks <= 8; ++ranks) {
      std::vector<int8_t> tiny;
      std::vector<int64_t> large;
      for (int value = -100; value <= 100; ++value) {
        tiny.push_back(static_cast<int8_t>(value));
        large.push_back(value * (int64_t{1} << 55));
      }
      FoldSpec spec = SpecOf(DataType::kInt8, ReduceOp::kAvg);
      spec.ranks = ranks;
      const std::vector<int8_t> tiny_average = Fold<int8_t>(spec, {tiny});
      spec.type = DataType::kInt64;
      const std::vector<int64_t> large_average = Fold<int64_t>(spec, {large});
      for (size_t i = 0; i < tiny.size(); ++i) {
        EXPECT_EQ(tiny_average[i], tiny[i] / ranks);
        EXPECT_EQ(large_average[i], large[i] / ranks);
      }
    }
  });
}

TEST(Fold, AveragesEveryQuotientOf32BitIntegersExactly) {
  std::mt19937 random(5);
  std::vector<uint32_t> sums = {0, 1, UINT32_MAX, UINT32_MAX - 1};
  for (int i = 0; i < 1000; ++i) sums.push_back(random());
  FoldSpec spec = SpecOf(DataType::kUint32, ReduceOp::kAvg);
  for (const int64_t ranks : {1, 3, 7, 10, 641, 65537, 16777217, INT32_MAX}) {
    spec.ranks = ranks;
    const std::vector<uint32_t> average = Fold<uint32_t>(spec, {sums});
    for (size_t i = 0; i < sums.size(); ++i)
      EXPECT_EQ(average[i], sums[i] / ranks);
  }
}

TEST(Fold, DividesTheWrappedSumOfIntegers) {
  FoldSpec spec = SpecOf(DataType::kInt8, ReduceOp::kAvg);
  spec.ranks = 2;
  EXPECT_EQ(Fold<int8_t>(spec, {{100}, {100}})[0], -56 / 2);
}

TEST(Fold, RoundsNarrowFloatsOnce) {
  // In bfloat16, 256 + 1 is 256 again.
  std::vector<std::vector<uint16_t>> arrays(9, {0x3f80});
  arrays[0] = {0x4380};
  EXPECT_EQ(Fold(SpecOf(DataType::kBFloat16, ReduceOp::kSum), arrays)[0],
            EncodeNarrow(DataType::kBFloat16, 264));
  // 65504 + 65504 is beyond float16, the average of both isn't.
  FoldSpec spec = SpecOf(DataType::kFloat16, ReduceOp::kAvg);
  spec.ranks = 2;
  EXPECT_EQ(Fold<uint16_t>(spec, {{0x7bff}, {0x7bff}})[0], 0x7bff);
}

TEST(Fold, KeepsNanAndOrdersZerosInMinAndMax) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> left = {nan, 1, -0.0, 0.0, nan, -nan};
  const std::vector<double> right = {1, nan, 0.0, -0.0, nan, 1};
  OnEveryTarget([&] {
    const std::vector<double> least =
        Fold<double>(SpecOf(DataType::kFloat64, ReduceOp::kMin), {left, right});
    const std::vector<double> greatest =
        Fold<double>(SpecOf(DataType::kFloat64, ReduceOp::kMax), {left, right});
    for (const size_t i : {0, 1, 4, 5}) {
      EXPECT_TRUE(std::isnan(least[i]));
      EXPECT_TRUE(std::isnan(greatest[i]));
    }
    for (const size_t i : {2, 3}) {
      EXPECT_TRUE(std::signbit(least[i]));
      EXPECT_FALSE(std::signbit(greatest[i]));
    }
  });
}

TEST(Fold, StoresOnlyZeroAndOneForBool) {
  std::vector<uint8_t> all;
  for (int value = 0; value < 256; ++value)
    all.push_back(static_cast<uint8_t>(value));
  const std::vector<uint8_t> none(256, 0);
  const std::vector<uint8_t> twos(256, 2);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kBor}) {
    const auto out = Fold<uint8_t>(SpecOf(DataType::kBool, op), {all, none});
    for (size_t i = 0; i < 256; ++i) EXPECT_EQ(out[i], i != 0);
  }
  for (const ReduceOp op : {ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kBand}) {
    const auto out = Fold<uint8_t>(SpecOf(DataType::kBool, op), {all, twos});
    for (size_t i = 0; i < 256; ++i) EXPECT_EQ(out[i], i != 0);
  }
}

TEST(Fold, MultipliesOnlyRawOperandsByTheFactor) {
  FoldSpec spec = SpecOf(DataType::kInt32, ReduceOp::kPremulSum);
  spec.factor.integer = -3;
  const int32_t own = 7;
  const int32_t partial = 100;
  int32_t output = 0;
  const FoldOperand operands[] = {{&partial}, {&own, true}};
  void* const results[] = {&output};
  MakeAndFold(spec, {operands, results, 1, true});
  EXPECT_EQ(output, 100 - 21);
}

TEST(Fold, AveragesOnlyACompleteFold) {
  const int32_t value = 9;
  int32_t output = 0;
  const FoldOperand operands[] = {{&value, true}};
  void* const results[] = {&output};
  const FoldSpec spec = SpecOf(DataType::kInt32, ReduceOp::kAvg);
  MakeAndFold(spec, {operands, results, 1, false});
  EXPECT_EQ(output, 9);
  MakeAndFold(spec, {operands, results, 1, true});
  EXPECT_EQ(output, 3);
}

TEST(Folder, SaysWhichOperandsAndResultsItChanges) {
  ForEachPair([](DataType type, ReduceOp op) {
    const Folder folder = MakeFolder(SpecOf(type, op)).value();
    EXPECT_EQ(folder.has_prepare(),
              op == ReduceOp::kPremulSum || type == DataType::kBool);
    EXPECT_EQ(folder.has_finish(), op == ReduceOp::kAvg);
  });
}

TEST(MakeFolder, RefusesPairsWithoutMeaningByName) {
  struct Refusal {
    DataType type;
    ReduceOp op;
  };
  for (const Refusal& c : {Refusal{DataType::kBool, ReduceOp::kAvg},
                           Refusal{DataType::kBool, ReduceOp::kPremulSum},
                           Refusal{DataType::kFloat32, ReduceOp::kBand},
                           Refusal{DataType::kFloat8E4M3, ReduceOp::kBxor},
                           Refusal{DataType::kComplex64, ReduceOp::kMin},
                           Refusal{DataType::kComplex128, ReduceOp::kProd}}) {
    EXPECT_FALSE(IsSupported(c.type, c.op));
    const absl::Status status = MakeFolder(SpecOf(c.type, c.op)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const std::string message(status.message());
    EXPECT_NE(message.find(Name(c.type)), std::string::npos) << message;
    EXPECT_NE(message.find(Name(c.op)), std::string::npos) << message;
    EXPECT_NE(message.find("sum"), std::string::npos) << message;
  }
  int supported = 0;
  ForEachPair([&](DataType, ReduceOp) { ++supported; });
  EXPECT_EQ(supported, 8 * 9 + 6 * 6 + 7 + 2 * 3);
}

TEST(MakeFolder, RefusesWhatIsNoTypeNoOperatorAndNoNumberOfRanks) {
  EXPECT_FALSE(
      MakeFolder(SpecOf(static_cast<DataType>(99), ReduceOp::kSum)).ok());
  EXPECT_FALSE(
      MakeFolder(SpecOf(DataType::kInt8, static_cast<ReduceOp>(99))).ok());
  EXPECT_FALSE(
      MakeFolder(SpecOf(DataType::kFloat32, static_cast<ReduceOp>(99))).ok());
  for (const int64_t ranks : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    FoldSpec spec = SpecOf(DataType::kInt32, ReduceOp::kAvg);
    spec.ranks = ranks;
    EXPECT_FALSE(MakeFolder(spec).ok());
  }
}

}  // namespace
}  // namespace trnccl
