// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/base/types.h"

#include <set>
#include <string_view>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(Types, EveryValueHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i < kDataTypes; ++i)
    names.insert(Name(static_cast<DataType>(i)));
  for (int i = 0; i < kReduceOps; ++i)
    names.insert(Name(static_cast<ReduceOp>(i)));
  for (int i = 0; i < kCollectives; ++i)
    names.insert(Name(static_cast<Collective>(i)));
  EXPECT_EQ(names.size(), kDataTypes + kReduceOps + kCollectives);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(Types, AValueOutsideTheEnumIsUnknownAndHasNoBytes) {
  EXPECT_EQ(Name(static_cast<DataType>(99)), "unknown");
  EXPECT_EQ(Name(static_cast<ReduceOp>(99)), "unknown");
  EXPECT_EQ(Name(static_cast<Collective>(99)), "unknown");
  EXPECT_EQ(ElementBytes(static_cast<DataType>(99)), 0u);
}

TEST(Types, ElementBytesFollowTheFormats) {
  EXPECT_EQ(ElementBytes(DataType::kBool), 1u);
  EXPECT_EQ(ElementBytes(DataType::kFloat8E5M2), 1u);
  EXPECT_EQ(ElementBytes(DataType::kBFloat16), 2u);
  EXPECT_EQ(ElementBytes(DataType::kComplex128), 16u);
}

}  // namespace
}  // namespace trnccl
