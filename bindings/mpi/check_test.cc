// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/check.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl::perf {
namespace {

// More than a block of the comparison, and no multiple of one.
constexpr size_t kCount = 10'007;

// A correct result of every type, to be damaged.
class Check : public testing::TestWithParam<trncclDataType_t> {
 protected:
  size_t bytes() const { return RowOf(GetParam()).bytes; }

  // Without an operator the bits are any: each element has its own, but for
  // types that are too short for that.
  Recipe recipe(Operator op = Operator::kNone) const {
    return {GetParam(), op, 2, 11};
  }

  std::vector<std::byte> Correct(const Recipe& made, const Piece& piece) {
    std::vector<std::byte> buffer(kCount * bytes());
    if (piece.source == kFolded)
      MakeFold(made, {0, kCount}, buffer.data());
    else
      MakeInput(made, piece.source, {0, kCount}, buffer.data());
    return buffer;
  }

  const Piece from_rank_1_ = {.source = 1, .count = kCount};
  const Piece folded_ = {.source = kFolded, .count = kCount};
};

TEST_P(Check, LetsACorrectResultPass) {
  const auto moved = Correct(recipe(), from_rank_1_);
  EXPECT_EQ(CountWrong(recipe(), {&from_rank_1_, 1}, moved.data()), 0);
  const Recipe sum = recipe(Operator::kSum);
  const auto result = Correct(sum, folded_);
  EXPECT_EQ(CountWrong(sum, {&folded_, 1}, result.data()), 0);
}

TEST_P(Check, CountsASingleBit) {
  for (size_t element : {size_t{0}, size_t{4096}, kCount - 1}) {
    for (size_t bit : {size_t{0}, 8 * bytes() - 1}) {
      auto result = Correct(recipe(), from_rank_1_);
      result[element * bytes() + bit / 8] ^= std::byte{1} << bit % 8;
      EXPECT_EQ(CountWrong(recipe(), {&from_rank_1_, 1}, result.data()), 1);
    }
  }
}

TEST_P(Check, CountsAShuffledResult) {
  auto result = Correct(recipe(), from_rank_1_);
  std::rotate(result.begin(),
              result.begin() + static_cast<ptrdiff_t>(kCount / 2 * bytes()),
              result.end());
  EXPECT_GT(CountWrong(recipe(), {&from_rank_1_, 1}, result.data()),
            static_cast<int64_t>(kCount / 3));
}

TEST_P(Check, CountsAResultThatIsOffByOneElement) {
  auto result = Correct(recipe(), from_rank_1_);
  std::memmove(result.data() + bytes(), result.data(), result.size() - bytes());
  EXPECT_GT(CountWrong(recipe(), {&from_rank_1_, 1}, result.data()),
            static_cast<int64_t>(kCount / 3));
}

TEST_P(Check, CountsAnotherRanksData) {
  const auto result = Correct(recipe(), {.source = 0});
  EXPECT_GT(CountWrong(recipe(), {&from_rank_1_, 1}, result.data()),
            static_cast<int64_t>(kCount / 3));
}

TEST_P(Check, CountsAStaleBuffer) {
  std::vector<std::byte> result(kCount * bytes());
  FillCanary(recipe(), {0, kCount}, result.data());
  EXPECT_GT(CountWrong(recipe(), {&from_rank_1_, 1}, result.data()),
            static_cast<int64_t>(kCount / 3));
  // Nor may the result of the check before pass.
  Recipe before = recipe();
  --before.seed;
  result = Correct(before, from_rank_1_);
  EXPECT_GT(CountWrong(recipe(), {&from_rank_1_, 1}, result.data()),
            static_cast<int64_t>(kCount / 3));
}

TEST_P(Check, CountsAnOperandLeftOut) {
  const Recipe sum = recipe(Operator::kSum);
  const auto result = Correct(sum, {.source = 0});
  EXPECT_GT(CountWrong(sum, {&folded_, 1}, result.data()),
            static_cast<int64_t>(kCount / 10));
}

TEST_P(Check, CountsAWriteIntoWhatMustStayUntouched) {
  const Piece guard = {.source = kUntouched, .at = 5, .count = 10};
  std::vector<std::byte> buffer(20 * bytes());
  FillCanary(recipe(), {0, 20}, buffer.data());
  EXPECT_EQ(CountWrong(recipe(), {&guard, 1}, buffer.data()), 0);
  buffer[5 * bytes() - 1] ^= std::byte{1};
  buffer[15 * bytes()] ^= std::byte{1};
  EXPECT_EQ(CountWrong(recipe(), {&guard, 1}, buffer.data()), 0);
  buffer[5 * bytes()] ^= std::byte{1};
  buffer[15 * bytes() - 1] ^= std::byte{1};
  EXPECT_EQ(CountWrong(recipe(), {&guard, 1}, buffer.data()), 2);
}

INSTANTIATE_TEST_SUITE_P(Types, Check, testing::ValuesIn([] {
                           std::vector<trncclDataType_t> types;
                           for (const TypeRow& row : AllTypes())
                             types.push_back(row.type);
                           return types;
                         }()),
                         [](const auto& param) {
                           return std::string(RowOf(param.param).name);
                         });

TEST(CheckAverage, ForgivesTwoUnitsInTheLastPlaceOfFloatsAlone) {
  for (trncclDataType_t type : {trncclFloat32, trncclInt32}) {
    const Recipe average = {type, Operator::kAvg, 3, 1};
    const Piece all = {.source = kFolded, .count = 100};
    int32_t result[100];
    MakeFold(average, {0, 100}, result);
    const bool floating = type == trncclFloat32;
    result[0] += 2;
    EXPECT_EQ(CountWrong(average, {&all, 1}, result), floating ? 0 : 1);
    result[1] += 3;
    EXPECT_EQ(CountWrong(average, {&all, 1}, result), floating ? 1 : 2);
    const Piece moved = {.source = 0, .count = 100};
    MakeInput(average, 0, {0, 100}, result);
    result[0] += 1;
    EXPECT_EQ(CountWrong(average, {&moved, 1}, result), 1);
  }
}

}  // namespace
}  // namespace trnccl::perf
