// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A communicator that has made billions of calls works as a new one does.
#include <cstdint>
#include <thread>
#include <vector>

#include "ccl/base/settings.h"
#include "ccl/bootstrap/unique_id.h"
#include "ccl/communicator/create.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

constexpr int kRanks = 3;
constexpr int kCalls = 1000;

// Sums of one number a rank, blocking and asynchronous in turn.
void CallOften(Communicator* communicator) {
  const int rank = communicator->membership().rank;
  for (int32_t i = 0; i < kCalls; ++i) {
    const int32_t mine = i * (rank + 1);
    int32_t sum = 0;
    Operation operation;
    operation.call = {.collective = Collective::kAllReduce,
                      .type = DataType::kInt32,
                      .input = reinterpret_cast<const std::byte*>(&mine),
                      .output = reinterpret_cast<std::byte*>(&sum),
                      .input_counts = BlockCounts::Even(1),
                      .output_counts = BlockCounts::Even(1)};
    if (i % 2 == 0) {
      ASSERT_TRUE(communicator->Run(&operation).ok());
    } else {
      Operation* const submitted[] = {&operation};
      ASSERT_TRUE(communicator->Submit(submitted).ok());
      ASSERT_TRUE(communicator->Wait(&operation, Communicator::kForever));
      ASSERT_TRUE(operation.status.ok()) << operation.status;
    }
    ASSERT_EQ(sum, i * (1 + 2 + 3)) << "call " << i;
  }
}

class Sequence : public testing::TestWithParam<uint32_t> {};

TEST_P(Sequence, Wraps) {
  const absl::StatusOr<UniqueId> id = CreateUniqueId({});
  ASSERT_TRUE(id.ok()) << id.status();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const absl::StatusOr<std::unique_ptr<Communicator>> communicator =
          MakeCommunicator({.id = *id,
                            .membership = {.rank = rank, .ranks = kRanks},
                            .name = "wraps",
                            .first_sequence = GetParam()});
      ASSERT_TRUE(communicator.ok()) << communicator.status();
      CallOften(communicator->get());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Near, Sequence,
                         testing::Values((uint32_t{1} << 31) - kCalls / 2,
                                         UINT32_MAX - kCalls / 2));

}  // namespace
}  // namespace trnccl
