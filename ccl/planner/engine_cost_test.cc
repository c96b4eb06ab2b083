// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/planner/engine_cost.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

LinkModel ModelOf(const LinkModel::PeerCopy& peer_copy) {
  return {.same_node = {.seconds_per_byte = 0.05e-9},
          .copy_seconds_per_byte = 0.05e-9,
          .peer_copy = peer_copy};
}

TEST(PeerCopy, PaysFromWhereTheSecondCopyCostsMoreThanTheCall) {
  const auto from = [](const LinkModel::PeerCopy& peer_copy) {
    return PeerCopyMinBytes(ModelOf(peer_copy));
  };
  EXPECT_NEAR(static_cast<double>(
                  from({.call_s = 500e-9, .seconds_per_byte = 0.05e-9})),
              10'000, 1);
  EXPECT_EQ(from({.call_s = 0, .seconds_per_byte = 0.05e-9}), 0U);
  EXPECT_EQ(from({.call_s = 500e-9, .seconds_per_byte = 0.1e-9}), SIZE_MAX);
  EXPECT_EQ(from({.call_s = 0, .seconds_per_byte = 0.2e-9}), SIZE_MAX);
}

}  // namespace
}  // namespace trnccl
