// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/data.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "bindings/mpi/narrow_float.h"
#include "gtest/gtest.h"

namespace trnccl::perf {
namespace {

constexpr size_t kCount = 512;

template <typename T>
std::vector<T> Input(const Recipe& recipe, int rank, size_t count = kCount) {
  std::vector<T> values(count);
  MakeInput(recipe, rank, {0, count}, values.data());
  return values;
}

template <typename T>
std::vector<T> Fold(const Recipe& recipe) {
  std::vector<T> values(kCount);
  MakeFold(recipe, {0, kCount}, values.data());
  return values;
}

FloatFormat FormatOf(trncclDataType_t type) {
  if (type == trncclFloat8e4m3) return kFloat8e4m3Format;
  if (type == trncclFloat8e5m2) return kFloat8e5m2Format;
  return type == trncclBfloat16 ? kBfloat16Format : kFloat16Format;
}

// The inputs of an element, by rank, as numbers.
std::vector<std::vector<double>> Columns(const Recipe& recipe) {
  std::vector<std::vector<double>> columns(kCount);
  for (int rank = 0; rank < recipe.ranks; ++rank) {
    std::vector<std::byte> raw(kCount * RowOf(recipe.type).bytes);
    MakeInput(recipe, rank, {0, kCount}, raw.data());
    for (size_t i = 0; i < kCount; ++i) {
      uint16_t bits = 0;
      const size_t bytes = RowOf(recipe.type).bytes;
      std::memcpy(&bits, raw.data() + i * bytes, bytes);
      columns[i].push_back(Decode(FormatOf(recipe.type), bits));
    }
  }
  return columns;
}

TEST(Data, DiffersBetweenRanksPositionsAndSeeds) {
  const Recipe recipe = {trncclUint64, Operator::kNone, 4, 7};
  std::set<uint64_t> seen;
  for (uint64_t seed : {7, 8}) {
    for (int rank = 0; rank < recipe.ranks; ++rank) {
      const Recipe other = {recipe.type, recipe.op, recipe.ranks, seed};
      for (uint64_t value : Input<uint64_t>(other, rank)) seen.insert(value);
    }
  }
  EXPECT_EQ(seen.size(), 2 * 4 * kCount);
}

TEST(Data, DoesNotDependOnTheRangeAskedFor) {
  for (const TypeRow& row : AllTypes()) {
    const Recipe recipe = {row.type, Operator::kSum, 3, 1};
    std::vector<std::byte> whole(kCount * row.bytes), part(100 * row.bytes);
    MakeFold(recipe, {0, kCount}, whole.data());
    MakeFold(recipe, {333, 100}, part.data());
    EXPECT_EQ(
        std::memcmp(whole.data() + 333 * row.bytes, part.data(), part.size()),
        0)
        << row.name;
  }
}

// Sums and products in every type that rounds early, in order and backwards,
// rounded after each step: exact means that no rounding shows.
TEST(Data, IsExactInAnyOrderOfFolding) {
  for (trncclDataType_t type :
       {trncclFloat16, trncclBfloat16, trncclFloat8e4m3, trncclFloat8e5m2}) {
    for (Operator op : {Operator::kSum, Operator::kProd}) {
      for (int ranks : {1, 2, 3, 7, 8, 16, 100}) {
        const Recipe recipe = {type, op, ranks, 3};
        const FloatFormat format = FormatOf(type);
        const auto fold = [&](const std::vector<double>& values) {
          double total = values[0];
          for (size_t i = 1; i < values.size(); ++i) {
            total =
                op == Operator::kSum ? total + values[i] : total * values[i];
            const double rounded = Decode(format, Encode(format, total));
            EXPECT_EQ(rounded, total) << RowOf(type).name << ranks;
          }
          return total;
        };
        for (std::vector<double> values : Columns(recipe)) {
          const double forward = fold(values);
          std::ranges::reverse(values);
          EXPECT_EQ(fold(values), forward);
        }
      }
    }
  }
}

TEST(Data, FoldsAsPlainArithmeticDoes) {
  const Recipe sum = {trncclFloat32, Operator::kSum, 3, 5};
  const Recipe low = {trncclInt16, Operator::kMin, 3, 5};
  const Recipe average = {trncclInt32, Operator::kAvg, 3, 5};
  const Recipe mulsum = {trncclFloat64, Operator::kMulSum, 3, 5};
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(Fold<float>(sum)[i], Input<float>(sum, 0)[i] +
                                       Input<float>(sum, 1)[i] +
                                       Input<float>(sum, 2)[i]);
    EXPECT_EQ(Fold<int16_t>(low)[i],
              std::min({Input<int16_t>(low, 0)[i], Input<int16_t>(low, 1)[i],
                        Input<int16_t>(low, 2)[i]}));
    EXPECT_EQ(Fold<int32_t>(average)[i],
              (Input<int32_t>(average, 0)[i] + Input<int32_t>(average, 1)[i] +
               Input<int32_t>(average, 2)[i]) /
                  3);
    EXPECT_EQ(Fold<double>(mulsum)[i], Input<double>(mulsum, 0)[i] +
                                           2 * Input<double>(mulsum, 1)[i] +
                                           Input<double>(mulsum, 2)[i]);
  }
}

TEST(Data, HasNegativesAndNoZerosWhereRanksAreFew) {
  for (Operator op : {Operator::kSum, Operator::kProd, Operator::kMin}) {
    const Recipe recipe = {trncclFloat32, op, 4, 9};
    const std::vector<float> values = Input<float>(recipe, 1);
    EXPECT_GT(std::ranges::count_if(values, [](float x) { return x < 0; }), 99);
    EXPECT_EQ(std::ranges::count(values, 0.0F), 0);
  }
}

TEST(Data, GivesBooleansThatAreMixed) {
  for (Operator op : {Operator::kSum, Operator::kProd, Operator::kBxor}) {
    const Recipe recipe = {trncclBool, op, 5, 9};
    const std::vector<uint8_t> results = Fold<uint8_t>(recipe);
    const auto trues = std::ranges::count(results, 1);
    EXPECT_GT(trues, 50);
    EXPECT_LT(trues, 462);
    EXPECT_EQ(trues + std::ranges::count(results, 0), kCount);
  }
}

TEST(Data, MakesSmallNumbers) {
  float real[2] = {9, 9};
  MakeNumber(trncclComplex64, 2, real);
  EXPECT_EQ(real[0], 2);
  EXPECT_EQ(real[1], 0);
  uint8_t narrow = 0;
  MakeNumber(trncclFloat8e4m3, 1, &narrow);
  EXPECT_EQ(narrow, 0x38);
}

}  // namespace
}  // namespace trnccl::perf
