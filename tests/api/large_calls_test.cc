// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Beyond 2 GiB: no count, offset or length is cut to 32 bits.
#include <sys/mman.h>

#include <vector>

#include "gtest/gtest.h"
#include "tests/api/every_call.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

constexpr size_t kCount = 2'362'232'012;  // 2.2 GiB of int8, no round number
constexpr size_t kStride = 65'521;        // of the samples, a prime

// Pages that are taken only where they are touched.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(base, MAP_FAILED);
    data_ = static_cast<int8_t*>(base);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  int8_t* data() { return data_; }

 private:
  size_t bytes_;
  int8_t* data_;
};

int8_t Sample(int rank, size_t at) {
  return static_cast<int8_t>(ValueOf(rank, at) % 50);
}

// Every sample, and the last elements.
std::vector<size_t> SampledAt(size_t count) {
  std::vector<size_t> positions;
  for (size_t at = 0; at < count; at += kStride) positions.push_back(at);
  positions.push_back(count - 1);
  return positions;
}

TEST(LargeCalls, AllReduceBeyond2GiB) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    Pages data(kCount);
    for (const size_t at : SampledAt(kCount))
      data.data()[at] = Sample(rank, at);
    ASSERT_CALL_OK(trncclAllReduce(data.data(), data.data(), kCount, trncclInt8,
                                   trncclSum, comm, nullptr));
    for (const size_t at : SampledAt(kCount))
      ASSERT_EQ(data.data()[at], Sample(0, at) + Sample(1, at)) << at;
    ASSERT_EQ(data.data()[1], 0);
  });
}

TEST(LargeCalls, AllGatherBeyond2GiB) {
  constexpr size_t kEach = kCount / 2 + 1;
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    Pages data(2 * kEach);
    int8_t* mine = data.data() + static_cast<size_t>(rank) * kEach;
    for (const size_t at : SampledAt(kEach)) mine[at] = Sample(rank, at);
    ASSERT_CALL_OK(
        trncclAllGather(mine, data.data(), kEach, trncclInt8, comm, nullptr));
    for (const size_t at : SampledAt(kEach)) {
      ASSERT_EQ(data.data()[at], Sample(0, at)) << at;
      ASSERT_EQ(data.data()[kEach + at], Sample(1, at)) << at;
    }
  });
}

TEST(LargeCalls, OneMessageBeyond2GiB) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    Pages data(kCount);
    if (rank == 0) {
      for (const size_t at : SampledAt(kCount)) data.data()[at] = Sample(0, at);
      ASSERT_CALL_OK(
          trncclSend(data.data(), kCount, trncclInt8, 1, 0, comm, nullptr));
      return;
    }
    trncclStatus_t status;
    ASSERT_CALL_OK(trncclRecv(data.data(), kCount, trncclInt8, 0, 0, &status,
                              comm, nullptr));
    EXPECT_EQ(status.count, kCount);
    for (const size_t at : SampledAt(kCount))
      ASSERT_EQ(data.data()[at], Sample(0, at)) << at;
  });
}

}  // namespace
}  // namespace trnccl
