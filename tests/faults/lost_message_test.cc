// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A message that's lost without a word: whoever waits for it hears, long before
// its deadline, that the one who sent it has left.
#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"
#include "tests/faults/outcome.h"

namespace trnccl {
namespace {

TEST(LostMessage, OfARankThatLeftEndsTheWaitForIt) {
  // The first packet to arrive is the broadcast.
  setenv("FI_PROVIDER_PATH", "transports/fabric/test_provider", 1);
  setenv("MANNERS_FAIL", "reset:1", 1);
  RunThreads(2, [](trncclUniqueId id, int rank) {
    const std::vector<const char*> settings = {
        "TRNCCL_TRANSPORT=fabric", "TRNCCL_FABRIC_PROVIDER=manners"};
    trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
    config.settings = settings.data();
    config.settings_count = static_cast<int>(settings.size());
    trncclComm_t comm = nullptr;
    ASSERT_CALL_OK(trncclCommInitRankConfig(&comm, 2, id, rank, &config));
    int32_t value = rank == 0 ? 17 : 0;
    const Outcome outcome = OutcomeOf([&] {
      return trncclBroadcast(&value, &value, 1, trncclInt32, 0, comm, nullptr);
    });
    if (rank == 0) {
      EXPECT_EQ(outcome.result, trncclSuccess) << outcome.text;
    } else {
      EXPECT_EQ(outcome.result, trncclRemoteError);
      EXPECT_TRUE(Says(outcome, {"rank 1: broadcast", "rank 0", "has left",
                                 "hasn't all arrived", "origin: rank 0"}));
    }
    EXPECT_CALL_OK(trncclCommDestroy(comm));
  });
}

}  // namespace
}  // namespace trnccl
