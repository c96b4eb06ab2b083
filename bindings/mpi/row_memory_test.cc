// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/row_memory.h"

#include <cstring>

#include "gtest/gtest.h"

namespace trnccl::perf {
namespace {

constexpr size_t kPart = 100;
constexpr size_t kAll = 3 * kPart;

// A gather of three ranks, as rank 1 sees it.
Shape Gather(int root) {
  Shape shape = {kPart, kPart, kAll, kAll};
  shape.in_place_send = kPart;
  if (root != 1) {
    shape.result = {{.source = kUntouched, .count = kAll}};
    return shape;
  }
  for (int rank = 0; rank < 3; ++rank)
    shape.result.push_back({.source = rank,
                            .at = static_cast<size_t>(rank) * kPart,
                            .count = kPart});
  return shape;
}

class RowMemoryTest : public testing::TestWithParam<Place> {
 protected:
  RowPlace row() const {
    return {{trncclFloat32, Operator::kNone, 3, 1}, 1, GetParam(), 3};
  }

  // What a correct gather writes at the root.
  void Write(const RowMemory& memory) const {
    for (int rank = 0; rank < 3; ++rank)
      MakeInput({trncclFloat32, Operator::kNone, 3, kSeed}, rank, {0, kPart},
                static_cast<float*>(memory.recv()) +
                    static_cast<size_t>(rank) * kPart);
  }

  static constexpr uint64_t kSeed = 5;
  const Buffers buffers_ = *Buffers::Make(4096, Backing::kHeap);
};

TEST_P(RowMemoryTest, PassesACorrectResult) {
  const Shape shape = Gather(1);
  RowMemory memory(buffers_, shape, row());
  memory.FillForCheck(kSeed);
  Write(memory);
  EXPECT_EQ(memory.CountWrong(), 0);
}

TEST_P(RowMemoryTest, CountsACallThatDidNothing) {
  const Shape shape = Gather(1);
  RowMemory memory(buffers_, shape, row());
  memory.FillForCheck(kSeed);
  Write(memory);
  memory.FillForCheck(kSeed + 1);
  // In place, this rank's own part is there already.
  EXPECT_EQ(memory.CountWrong(),
            GetParam() == Place::kIn ? 2 * kPart : 3 * kPart);
}

TEST_P(RowMemoryTest, CountsAWriteToWhatARankMustNotGet) {
  const Shape shape = Gather(0);
  RowMemory memory(buffers_, shape, row());
  memory.FillForCheck(kSeed);
  EXPECT_EQ(memory.CountWrong(), 0);
  for (size_t at : {size_t{0}, kPart, kAll - 1}) {
    static_cast<uint32_t*>(memory.recv())[at] ^= 1;
    EXPECT_EQ(memory.CountWrong(), 1) << at;
    static_cast<uint32_t*>(memory.recv())[at] ^= 1;
  }
}

TEST_P(RowMemoryTest, CountsAWriteBehindTheBuffer) {
  const Shape shape = Gather(1);
  RowMemory memory(buffers_, shape, row());
  memory.FillForCheck(kSeed);
  Write(memory);
  static_cast<uint32_t*>(memory.recv())[kAll] ^= 1;
  EXPECT_EQ(memory.CountWrong(), 1);
}

TEST_P(RowMemoryTest, CountsAChangedInput) {
  const Shape shape = Gather(1);
  RowMemory memory(buffers_, shape, row());
  memory.FillForCheck(kSeed);
  Write(memory);
  static_cast<uint32_t*>(memory.send())[kPart - 1] ^= 1;
  EXPECT_EQ(memory.CountWrong(), 1);
}

TEST_P(RowMemoryTest, RewritesTheWholeInputAnotherWayEachTime) {
  const Shape shape = Gather(1);
  RowMemory memory(buffers_, shape, row());
  memory.FillForTime();
  uint32_t before[kPart];
  std::memcpy(before, memory.send(), sizeof(before));
  memory.RewriteInput(1);
  size_t changed = 0;
  for (size_t i = 0; i < kPart; ++i)
    changed += static_cast<const uint32_t*>(memory.send())[i] != before[i];
  EXPECT_EQ(changed, kPart);
}

INSTANTIATE_TEST_SUITE_P(Places, RowMemoryTest,
                         testing::Values(Place::kOut, Place::kIn),
                         [](const auto& param) {
                           return param.param == Place::kIn ? "InPlace"
                                                            : "OutOfPlace";
                         });

}  // namespace
}  // namespace trnccl::perf
