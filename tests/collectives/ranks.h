// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Ranks for tests: each a thread of this process with a communicator of its
// own, made through the public interface. A test body runs once per rank;
// failures of any rank fail the test.
//
//   RunRanks({.ranks = 4, .settings = {"TRNCCL_ALGORITHM=ring"}},
//            [](trncclComm_t comm, int rank) { ... EXPECT_EQ(...); });
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ccl/trnccl.h"

namespace trnccl {

struct RankOptions {
  int ranks = 2;
  std::vector<std::string> settings;
  // More settings, of one rank. Null: none.
  std::function<std::vector<std::string>(int rank)> settings_of_rank;
};

// The deadline of every call is short unless the settings say otherwise, so
// that a hang is a failure with a text.
void RunRanks(const RankOptions& options,
              const std::function<void(trncclComm_t comm, int rank)>& body);

// The same without communicators: bodies make their own from the id.
void RunThreads(int ranks,
                const std::function<void(trncclUniqueId id, int rank)>& body);

}  // namespace trnccl

// The call succeeds, or the test fails with the library's text.
#define EXPECT_CALL_OK(call) \
  EXPECT_EQ(call, trncclSuccess) << trncclGetLastError(nullptr)
#define ASSERT_CALL_OK(call) \
  ASSERT_EQ(call, trncclSuccess) << trncclGetLastError(nullptr)
