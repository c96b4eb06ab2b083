// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What users of reductions rely on, whatever the algorithm.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/catalog.h"
#include "gtest/gtest.h"
#include "tests/api/every_call.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

uint16_t ToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float FromBfloat16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

float FloatOf(int rank, size_t i) {
  return static_cast<float>(ValueOf(rank, i) % 20'000) / 7000.0f - 1.0f;
}

std::vector<std::string> AllReduceAlgorithms() {
  std::vector<std::string> names;
  for (const Algorithm& row : Catalog())
    if (row.collective == Collective::kAllReduce && row.legal({.ranks = 8}))
      names.emplace_back(row.name);
  return names;
}

// Strict: one rounding, at the end.
TEST(Reductions, OfBfloat16RoundOnceWhereTheyAreStrict) {
  constexpr int kRanks = 8;
  constexpr size_t kCount = 1500;
  RunRanks({.ranks = kRanks, .settings = {"TRNCCL_DETERMINISM=strict"}},
           [](trncclComm_t comm, int rank) {
             std::vector<uint16_t> data(kCount);
             for (size_t i = 0; i < kCount; ++i)
               data[i] = ToBfloat16(FloatOf(rank, i));
             ASSERT_CALL_OK(trncclAllReduce(data.data(), data.data(), kCount,
                                            trncclBfloat16, trncclSum, comm,
                                            nullptr));
             for (size_t i = 0; i < kCount; ++i) {
               float sum = 0;
               for (int r = 0; r < kRanks; ++r)
                 sum += FromBfloat16(ToBfloat16(FloatOf(r, i)));
               ASSERT_EQ(data[i], ToBfloat16(sum)) << i;
             }
           });
}

// No more than one rounding a fold, on every algorithm: n - 1 at most.
TEST(Reductions, OfBfloat16StayNearTheExactSum) {
  constexpr int kRanks = 8;
  constexpr size_t kCount = 500;
  for (const std::string& algorithm : AllReduceAlgorithms()) {
    RunRanks({.ranks = kRanks,
              .settings = {"TRNCCL_ALGORITHM=all_reduce:" + algorithm}},
             [&](trncclComm_t comm, int rank) {
               std::vector<uint16_t> data(kCount);
               for (size_t i = 0; i < kCount; ++i)
                 data[i] = ToBfloat16(FloatOf(rank, i));
               ASSERT_CALL_OK(trncclAllReduce(data.data(), data.data(), kCount,
                                              trncclBfloat16, trncclSum, comm,
                                              nullptr));
               for (size_t i = 0; i < kCount; ++i) {
                 double sum = 0;
                 double magnitude = 0;
                 for (int r = 0; r < kRanks; ++r) {
                   const double term = FromBfloat16(ToBfloat16(FloatOf(r, i)));
                   sum += term;
                   magnitude += std::abs(term);
                 }
                 ASSERT_NEAR(FromBfloat16(data[i]), sum,
                             (kRanks - 1) * magnitude / 256)
                     << algorithm << " " << i;
               }
             });
  }
}

// All ranks, and ten runs, however the ranks' threads meet.
TEST(Reductions, GiveAllRanksAndEveryRunTheSameBits) {
  constexpr int kRanks = 5;
  constexpr size_t kCount = 2003;
  for (const std::string& algorithm : AllReduceAlgorithms()) {
    std::mutex mutex;
    std::vector<float> first;
    RunRanks({.ranks = kRanks,
              .settings = {"TRNCCL_ALGORITHM=all_reduce:" + algorithm,
                           "TRNCCL_SEGMENT_BYTES=1000"}},
             [&](trncclComm_t comm, int rank) {
               std::vector<float> in(kCount);
               for (size_t i = 0; i < kCount; ++i) in[i] = FloatOf(rank, i);
               for (int run = 0; run < 10; ++run) {
                 std::vector<float> out(kCount);
                 ASSERT_CALL_OK(trncclAllReduce(in.data(), out.data(), kCount,
                                                trncclFloat32, trncclSum, comm,
                                                nullptr));
                 std::lock_guard<std::mutex> lock(mutex);
                 if (first.empty()) first = out;
                 ASSERT_EQ(std::memcmp(first.data(), out.data(),
                                       kCount * sizeof(float)),
                           0)
                     << algorithm << " rank " << rank << " run " << run;
               }
             });
  }
}

TEST(Reductions, ToARootTouchNothingOfTheOthers) {
  constexpr int kRanks = 4;
  constexpr size_t kCount = 1111;
  for (const Algorithm& row : Catalog()) {
    if (row.collective != Collective::kReduce || !row.legal({.ranks = kRanks}))
      continue;
    RunRanks({.ranks = kRanks,
              .settings = {absl::StrCat("TRNCCL_ALGORITHM=reduce:",
                                        std::string(row.name))}},
             [&](trncclComm_t comm, int rank) {
               for (int root = 0; root < kRanks; ++root) {
                 std::vector<uint32_t> in(kCount, ValueOf(rank, root));
                 std::vector<uint32_t> out(kCount, 77);
                 ASSERT_CALL_OK(trncclReduce(in.data(), out.data(), kCount,
                                             trncclUint32, trncclSum, root,
                                             comm, nullptr));
                 EXPECT_EQ(in,
                           std::vector<uint32_t>(kCount, ValueOf(rank, root)));
                 if (rank == root) continue;
                 EXPECT_EQ(out, std::vector<uint32_t>(kCount, 77)) << row.name;
               }
             });
  }
}

// Whatever bytes come in as true, 0 and 1 go out; sum and max are or, product
// and min are and; an average is refused and leaves all as it was.
TEST(Reductions, OfBoolsAreLogical) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    const std::vector<uint8_t> in = {0, static_cast<uint8_t>(rank), 2, 255};
    std::vector<uint8_t> out(4, 9);
    EXPECT_EQ(trncclAllReduce(in.data(), out.data(), 4, trncclBool, trncclAvg,
                              comm, nullptr),
              trncclInvalidArgument);
    EXPECT_EQ(out, std::vector<uint8_t>(4, 9));
    for (const trncclRedOp_t op : {trncclSum, trncclMax}) {
      ASSERT_CALL_OK(trncclAllReduce(in.data(), out.data(), 4, trncclBool, op,
                                     comm, nullptr));
      EXPECT_EQ(out, (std::vector<uint8_t>{0, 1, 1, 1}));
    }
    for (const trncclRedOp_t op : {trncclProd, trncclMin}) {
      ASSERT_CALL_OK(trncclAllReduce(in.data(), out.data(), 4, trncclBool, op,
                                     comm, nullptr));
      EXPECT_EQ(out, (std::vector<uint8_t>{0, 0, 1, 1}));
    }
  });
}

// Any number of ranks, not only the small ones.
TEST(Reductions, WorkForAnyNumberOfRanks) {
  for (const int ranks : {6, 7, 9, 13, 16, 18, 33}) {
    RunRanks({.ranks = ranks, .settings = {"TRNCCL_ARENA_BYTES=128K"}},
             [ranks](trncclComm_t comm, int rank) {
               for (const EachCall& call : EveryCollective({ranks, rank}, 40)) {
                 ASSERT_CALL_OK(call.issue(comm, nullptr));
                 ASSERT_TRUE(call.is_right()) << call.name << " of " << ranks;
               }
             });
  }
}

}  // namespace
}  // namespace trnccl
