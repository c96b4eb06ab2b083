// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// One rank of a short job, for tests on hosts of their own (networks_test.py):
//   sum RANK RANKS ID_FILE
// Rank 0 makes the id and writes it to the file, others wait for that. Sums
// over all ranks, splits, and sums over those of its half. Prints "sums are
// right", or what went wrong.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "ccl/trnccl.h"

namespace {

// Enough that it doesn't travel as one short message.
constexpr size_t kCount = 300'000;

[[noreturn]] void Fail(const std::string& cause) {
  std::cout << cause << std::endl;
  std::exit(1);
}

void Check(trncclResult_t result, const char* call) {
  if (result != trncclSuccess)
    Fail(std::string(call) + ": " + trncclGetLastError(nullptr));
}

trncclUniqueId IdOf(int rank, const std::string& path) {
  trncclUniqueId id;
  if (rank == 0) {
    Check(trncclGetUniqueId(&id), "trncclGetUniqueId");
    // Whole or not at all for who waits.
    const std::string unfinished = path + ".part";
    std::ofstream(unfinished, std::ios::binary)
        .write(reinterpret_cast<const char*>(&id), sizeof(id));
    if (rename(unfinished.c_str(), path.c_str()) != 0)
      Fail("can't write " + path);
    return id;
  }
  constexpr int kTries = 20'000;
  for (int i = 0; i < kTries; ++i) {
    std::ifstream file(path, std::ios::binary);
    if (file.read(reinterpret_cast<char*>(&id), sizeof(id))) return id;
    usleep(1'000);
  }
  Fail("nobody wrote " + path);
}

// Rank r brings r + 1.
void CheckSum(trncclComm_t comm) {
  int rank = 0;
  int ranks = 0;
  Check(trncclCommUserRank(comm, &rank), "trncclCommUserRank");
  Check(trncclCommCount(comm, &ranks), "trncclCommCount");
  std::vector<int32_t> mine(kCount, rank + 1);
  std::vector<int32_t> sum(kCount);
  for (const size_t count : {size_t{1}, kCount}) {
    Check(trncclAllReduce(mine.data(), sum.data(), count, trncclInt32,
                          trncclSum, comm, nullptr),
          "trncclAllReduce");
    const auto wrong = [&](int32_t value) {
      return value != ranks * (ranks + 1) / 2;
    };
    if (std::any_of(sum.begin(), sum.begin() + static_cast<int64_t>(count),
                    wrong))
      Fail("a sum is wrong");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int rank = std::atoi(argv[1]);
  const int ranks = std::atoi(argv[2]);
  const trncclUniqueId id = IdOf(rank, argv[3]);
  trncclComm_t world = nullptr;
  Check(trncclCommInitRank(&world, ranks, id, rank), "trncclCommInitRank");
  CheckSum(world);
  trncclComm_t half = nullptr;
  Check(trncclCommSplit(world, rank % 2, rank, &half, nullptr),
        "trncclCommSplit");
  CheckSum(half);
  trncclComm_t same = nullptr;
  Check(trncclCommSplit(world, 0, -rank, &same, nullptr), "trncclCommSplit");
  CheckSum(same);
  for (trncclComm_t comm : {same, half, world})
    Check(trncclCommDestroy(comm), "trncclCommDestroy");
  std::cout << "sums are right" << std::endl;
}
