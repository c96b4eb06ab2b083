// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/communicator/checks.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/spec.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

constexpr int64_t kCount = 5;
constexpr int64_t kBytes = 4;  // of float32

// What trnccl.h calls in place: where recv lies relative to send, in elements.
struct InPlaceForm {
  bool exists = false;
  int64_t recv_at = 0;
};

InPlaceForm FormOf(Collective collective, const Membership& me) {
  const int64_t own = me.rank * kCount;
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kAllGatherV:
      return {true, -own};
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kScatter:
      return {true, own};
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
      return {};
    default:
      return {true, 0};
  }
}

// A call of kCount elements a block, uneven ones with all counts alike.
struct TestCall {
  TestCall(Collective collective, const Membership& me, int root)
      : counts(static_cast<size_t>(me.ranks), kCount) {
    call = {.collective = collective,
            .root = root,
            .input_counts = BlockCounts::Even(kCount),
            .output_counts = BlockCounts::Even(kCount)};
    if (collective == Collective::kReduceScatterV ||
        collective == Collective::kAllToAllV)
      call.input_counts = {.counts = counts};
    if (collective == Collective::kAllGatherV ||
        collective == Collective::kAllToAllV)
      call.output_counts = {.counts = counts};
  }
  std::vector<int64_t> counts;
  CollectiveCall call;
};

class EveryCollective : public testing::TestWithParam<int> {
 protected:
  Collective collective() const { return static_cast<Collective>(GetParam()); }
};

// Every way that recv may lie around send, byte by byte, against the header's
// own words.
TEST_P(EveryCollective, TakesBuffersApartAndInPlaceAndNoOthers) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const Membership me{.rank = rank, .ranks = ranks};
      const int root = ranks / 2;
      TestCall test(collective(), me, root);
      const Shape shape{.ranks = ranks, .rank = rank, .root = root};
      const Spec& spec = SpecOf(collective());
      const int64_t sent = spec.input(shape).count * kCount * kBytes;
      const int64_t received = spec.output(shape).count * kCount * kBytes;
      std::vector<std::byte> memory(
          static_cast<size_t>(2 * sent + 4 * received) + 64);
      std::byte* send = memory.data() + 2 * received + 16;
      const InPlaceForm form = FormOf(collective(), me);
      for (int64_t at = -received - 8; at <= sent + 8; ++at) {
        test.call.input = send;
        test.call.output = send + at;
        const bool apart =
            sent == 0 || received == 0 || at >= sent || -at >= received;
        const bool in_place = form.exists && at == form.recv_at * kBytes;
        const absl::Status status = CheckCall(test.call, me);
        EXPECT_EQ(status.ok(), apart || in_place)
            << Name(collective()) << " rank " << rank << " of " << ranks
            << ", recv at " << at << " bytes: " << status;
      }
    }
  }
}

TEST_P(EveryCollective, RefusesCountsThatDontFit) {
  if (collective() == Collective::kBarrier) return;
  const Membership me{.rank = 1, .ranks = 2};
  std::byte here{};
  for (const int64_t count : {int64_t{-1}, INT64_MIN, INT64_MAX, INT64_MAX / 4,
                              INT64_MAX / 8 + 1, int64_t{1} << 56}) {
    TestCall test(collective(), me, 1);
    std::fill(test.counts.begin(), test.counts.end(), count);
    if (test.call.input_counts.counts.empty())
      test.call.input_counts = BlockCounts::Even(count);
    if (test.call.output_counts.counts.empty())
      test.call.output_counts = BlockCounts::Even(count);
    test.call.input = &here;
    test.call.output = &here;
    const absl::Status status = CheckCall(test.call, me);
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("fit in memory"), std::string::npos)
        << count << ": " << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, EveryCollective,
                         testing::Range(0, kCollectives), [](const auto& one) {
                           return std::string(
                               Name(static_cast<Collective>(one.param)));
                         });

// Blocks that lie over each other would be written twice, by whoever's later.
TEST(Displacements, MayLeaveGapsAndNotOverlap) {
  const Membership me{.rank = 0, .ranks = 3};
  std::vector<std::byte> memory(1000);
  const std::vector<int64_t> counts = {2, 0, 3};
  const auto check = [&](const std::vector<int64_t>& offsets) {
    return CheckCall({.collective = Collective::kAllGatherV,
                      .input = memory.data() + 900,
                      .output = memory.data(),
                      .input_counts = BlockCounts::Even(2),
                      .output_counts = {.counts = counts, .offsets = offsets}},
                     me)
        .ok();
  };
  EXPECT_TRUE(check({0, 2, 2}));
  EXPECT_TRUE(check({7, 0, 1}));  // in any order
  EXPECT_TRUE(check({3, 3, 0}));  // an empty block lies nowhere
  EXPECT_FALSE(check({0, 2, 1}));
  EXPECT_FALSE(check({1, 0, 0}));
  EXPECT_FALSE(check({-1, 2, 2}));
  EXPECT_FALSE(check({INT64_MAX, 2, 2}));
}

// Those that are only read may.
TEST(Displacements, MayOverlapWhereTheyAreRead) {
  const Membership me{.rank = 0, .ranks = 2};
  std::vector<std::byte> memory(1000);
  const std::vector<int64_t> counts = {4, 4};
  const std::vector<int64_t> same = {0, 0};
  EXPECT_TRUE(CheckCall({.collective = Collective::kAllToAllV,
                         .input = memory.data(),
                         .output = memory.data() + 500,
                         .input_counts = {.counts = counts, .offsets = same},
                         .output_counts = {.counts = counts}},
                        me)
                  .ok());
}

}  // namespace
}  // namespace trnccl
