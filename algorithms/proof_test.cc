// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The proof of every row of the catalog: for each count of ranks, root and node
// grid where the row says that it's legal, the verifier proves all that the
// row claims. Out of place and copied always, in place and by reference where
// claimed.
#include <cstddef>
#include <iostream>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/catalog.h"
#include "algorithms/grids.h"
#include "algorithms/spec.h"
#include "algorithms/verifier.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

std::vector<int> SmallCounts() {
  std::vector<int> counts(64);
  std::iota(counts.begin(), counts.end(), 1);
  return counts;
}

const std::vector<int> kLargeCounts = {65, 100, 127, 128, 255, 256};

std::set<int> RootsFor(const Algorithm& algorithm, int ranks) {
  if (!SpecOf(algorithm.collective).rooted) return {0};
  if (ranks > 16) return {0, 1, ranks / 2, ranks - 1};
  std::set<int> roots;
  for (int root = 0; root < ranks; ++root) roots.insert(root);
  return roots;
}

class Proof : public testing::TestWithParam<size_t> {
 protected:
  const Algorithm& algorithm() const { return Catalog()[GetParam()]; }

  void Prove(const Shape& shape) {
    if (!algorithm().legal(shape)) {
      ++not_legal_;
      return;
    }
    ++proved_;
    const auto proven = Verify(BuildSchedule(algorithm(), shape),
                               {.collective = algorithm().collective,
                                .ranks = shape.ranks,
                                .root = shape.root,
                                .proofs = algorithm().proofs});
    ASSERT_TRUE(proven.ok()) << shape.ranks << " ranks, root " << shape.root
                             << ": " << proven.status().message();
  }

  void ProveForCounts(const std::vector<int>& counts) {
    for (int ranks : counts) {
      for (int root : RootsFor(algorithm(), ranks)) {
        Prove({.ranks = ranks, .root = root});
        if (HasFailure()) return;
      }
    }
  }

  void TearDown() override {
    std::cout << proved_ << " proved, " << not_legal_ << " not legal\n";
  }

 private:
  int proved_ = 0;
  int not_legal_ = 0;
};

TEST_P(Proof, HoldsForSmallCounts) { ProveForCounts(SmallCounts()); }
TEST_P(Proof, HoldsForLargeCounts) { ProveForCounts(kLargeCounts); }
TEST_P(Proof, HoldsForAThousandRanks) { ProveForCounts({1000}); }

TEST_P(Proof, HoldsForNodeGrids) {
  for (const Grid& grid : GridsToProve()) {
    const int ranks = RanksOf(grid);
    for (int root : RootsFor(algorithm(), ranks)) {
      SCOPED_TRACE(Describe(grid));
      Prove({.ranks = ranks, .root = root, .grid = &grid});
      if (HasFailure()) return;
    }
  }
}

std::string RowName(const testing::TestParamInfo<size_t>& info) {
  const Algorithm& algorithm = Catalog()[info.param];
  return absl::StrCat(std::string(Name(algorithm.collective)), "_",
                      std::string(algorithm.name));
}

INSTANTIATE_TEST_SUITE_P(Catalog, Proof,
                         testing::Range(size_t{0}, Catalog().size()), RowName);

TEST(Catalog, EveryCollectiveHasALegalRowForEveryCount) {
  std::vector<int> counts = SmallCounts();
  counts.insert(counts.end(), kLargeCounts.begin(), kLargeCounts.end());
  counts.push_back(1000);
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (int ranks : counts) {
      bool any = false;
      for (const Algorithm& algorithm : Catalog()) {
        any |= FindAlgorithm(collective, algorithm.name) == &algorithm &&
               algorithm.legal({.ranks = ranks});
      }
      EXPECT_TRUE(any) << Name(collective) << ", " << ranks << " ranks";
    }
  }
}

TEST(Catalog, NamesARowOfACollectiveOnce) {
  for (const Algorithm& algorithm : Catalog()) {
    EXPECT_EQ(FindAlgorithm(algorithm.collective, algorithm.name), &algorithm)
        << Name(algorithm.collective) << " " << algorithm.name;
  }
}

}  // namespace
}  // namespace trnccl
