// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/collectives/ranks.h"

#include <thread>

#include "gtest/gtest.h"

namespace trnccl {

void RunThreads(int ranks,
                const std::function<void(trncclUniqueId id, int rank)>& body) {
  trncclUniqueId id;
  ASSERT_CALL_OK(trncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { body(id, rank); });
  for (std::thread& thread : threads) thread.join();
}

void RunRanks(const RankOptions& options,
              const std::function<void(trncclComm_t comm, int rank)>& body) {
  RunThreads(options.ranks, [&](trncclUniqueId id, int rank) {
    std::vector<std::string> texts = options.settings;
    if (options.settings_of_rank != nullptr)
      for (const std::string& setting : options.settings_of_rank(rank))
        texts.push_back(setting);
    std::vector<const char*> settings = {"TRNCCL_TIMEOUT_MS=60000"};
    for (const std::string& text : texts) settings.push_back(text.c_str());
    trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
    config.settings = settings.data();
    config.settings_count = static_cast<int>(settings.size());
    trncclComm_t comm = nullptr;
    ASSERT_CALL_OK(
        trncclCommInitRankConfig(&comm, options.ranks, id, rank, &config));
    body(comm, rank);
    EXPECT_CALL_OK(trncclCommDestroy(comm));
  });
}

}  // namespace trnccl
