// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/tree.h"

#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(Tree, LevelsGrowAsTheLogarithm) {
  EXPECT_EQ(LevelsBelow(0, 1), 0);
  EXPECT_EQ(LevelsBelow(0, 2), 1);
  EXPECT_EQ(LevelsBelow(0, 3), 1);
  EXPECT_EQ(LevelsBelow(0, 4), 2);
  EXPECT_EQ(LevelsBelow(1, 4), 1);
  EXPECT_EQ(LevelsBelow(2, 4), 0);
  EXPECT_EQ(LevelsBelow(0, 65536), 16);
}

TEST(Tree, ErrorsTravelWithCodeAndText) {
  const absl::Status status = absl::AbortedError("rank 2 was aborted");
  EXPECT_EQ(StatusOf(ErrorFrame(status)), status);
}

TEST(Tree, MalformedErrorIsStillAnError) {
  for (const char* body : {"", "\xff?", "\x11?"}) {
    EXPECT_FALSE(StatusOf({TreeFrame::Kind::kError, 0, body}).ok());
  }
  EXPECT_FALSE(
      StatusOf({TreeFrame::Kind::kError, 0, std::string(1, '\0')}).ok());
}

}  // namespace
}  // namespace trnccl
