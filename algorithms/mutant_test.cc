// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Whether the verifier sees what's wrong: every schedule of the catalog for 2
// to 8 ranks is damaged at every step, in every way below, and each damaged
// schedule must be refused.
//
// A mutant is equivalent, and so not counted, if it's no mutant at all (the
// schedule stays the same: one chunk has no neighbour, two ranks have no third)
// or if it damages what nobody claims, as each mutation states.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/catalog.h"
#include "algorithms/grids.h"
#include "algorithms/schedule.h"
#include "algorithms/spec.h"
#include "algorithms/verifier.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

// Damages one schedule at one place at a time, and counts who notices.
class Mutator {
 public:
  Mutator(const Algorithm& algorithm, const Shape& shape)
      : algorithm_(algorithm),
        claim_({.collective = algorithm.collective,
                .ranks = shape.ranks,
                .root = shape.root,
                .proofs = algorithm.proofs}),
        schedule_(BuildSchedule(algorithm, shape)),
        total_(SpecOf(algorithm.collective).blocks(shape.ranks) *
               schedule_.programs[0].chunks_per_block) {}

  void Run() {
    ASSERT_TRUE(Verify(schedule_, claim_).ok());
    for (Program& program : schedule_.programs) {
      for (Lane& lane : program.lanes) {
        for (size_t i = 0; i < lane.steps.size(); ++i) {
          MutateOrder(lane, i);
          MutateMarks(lane, i);
          MutateData(lane, i);
          MutatePeers(lane, i);
        }
      }
    }
  }

  static std::map<std::string, std::pair<int, int>>& counts() {
    static auto& counts = *new std::map<std::string, std::pair<int, int>>();
    return counts;
  }

 private:
  template <typename Change>
  void Try(const std::string& kind, Lane& lane, size_t index, Change change) {
    const Lane before = lane;
    change();
    if (lane.steps != before.steps) {
      auto& [refused, mutants] = counts()[kind];
      ++mutants;
      const bool accepted = Verify(schedule_, claim_).ok();
      refused += accepted ? 0 : 1;
      EXPECT_FALSE(accepted)
          << Name(claim_.collective) << " " << algorithm_.name << ", "
          << claim_.ranks << " ranks, root " << claim_.root << ": " << kind
          << ", step " << index << " of\n"
          << Dump(Program{.lanes = {before}});
    }
    lane = before;
  }

  void MutateOrder(Lane& lane, size_t i) {
    Try("step dropped", lane, i, [&] {
      lane.steps.erase(lane.steps.begin() + static_cast<std::ptrdiff_t>(i));
    });
    const size_t writer = OverwriterOf(lane, i);
    Try("early overwrite", lane, i, [&] {
      if (writer == i) return;
      std::rotate(lane.steps.begin() + static_cast<std::ptrdiff_t>(i),
                  lane.steps.begin() + static_cast<std::ptrdiff_t>(writer),
                  lane.steps.begin() + static_cast<std::ptrdiff_t>(writer) + 1);
    });
  }

  void MutateMarks(Lane& lane, size_t i) {
    Step& step = lane.steps[i];
    Try("completes flipped", lane, i,
        [&] { step.completes = !step.completes; });
    Try("partial flipped", lane, i, [&] { step.partial = !step.partial; });
    for (size_t k = 0; k < step.operands.size(); ++k) {
      Try("operand's partial flipped", lane, i, [&] {
        lane.steps[i].operands[k].partial = !step.operands[k].partial;
      });
    }
  }

  void MutateData(Lane& lane, size_t i) {
    // Copying all chunks from buffer to buffer may start with any of them.
    const bool starts_anywhere =
        ChunkCount(lane.steps[i]) == total_ && IsLocal(lane.steps[i]);
    for (size_t k = 0; k < lane.steps[i].spans.size(); ++k) {
      Try("chunk off by one", lane, i, [&] {
        if (starts_anywhere) return;
        int64_t& first = lane.steps[i].spans[k].first;
        first = (first + 1) % total_;
      });
    }
    Try("store dropped", lane, i, [&] { lane.steps[i].stores = false; });
    Try("extra contribution", lane, i,
        [&] { lane.steps[i].operands.push_back(Operand::Of(Buffer::kInput)); });
    // Elsewhere any order is right that all ranks share.
    if (!claim_.proofs.left_fold) return;
    for (size_t k = 1; k < lane.steps[i].operands.size(); ++k) {
      Try("operands swapped", lane, i, [&] {
        std::swap(lane.steps[i].operands[k - 1], lane.steps[i].operands[k]);
      });
    }
  }

  void MutatePeers(Lane& lane, size_t i) {
    for (size_t k = 0; k < lane.steps[i].send_to.size(); ++k) {
      Try("send dropped", lane, i, [&] {
        auto& send_to = lane.steps[i].send_to;
        send_to.erase(send_to.begin() + static_cast<std::ptrdiff_t>(k));
      });
      Try("receiver swapped", lane, i, [&] {
        int& peer = lane.steps[i].send_to[k];
        peer = (peer + 1) % claim_.ranks;
      });
    }
    for (size_t k = 0; k < lane.steps[i].operands.size(); ++k) {
      if (lane.steps[i].operands[k].peer == Operand::kNoPeer) continue;
      Try("sender swapped", lane, i, [&] {
        int& peer = lane.steps[i].operands[k].peer;
        peer = (peer + 1) % claim_.ranks;
      });
    }
  }

  // Without messages and scratch, which keep chunks in an order.
  static bool IsLocal(const Step& step) {
    return step.send_to.empty() && step.store.buffer != Buffer::kScratch &&
           std::ranges::all_of(step.operands, [](const Operand& operand) {
             return operand.peer == Operand::kNoPeer &&
                    operand.place.buffer != Buffer::kScratch;
           });
  }

  // The next step of the lane that changes what step i reads, or i itself.
  // A chunk that isn't reduced has the same value whenever it's stored in its
  // place, so only slots can be overwritten too early there.
  size_t OverwriterOf(const Lane& lane, size_t i) const {
    const std::set<int64_t> cells = CellsRead(lane.steps[i]);
    for (size_t j = i + 1; j < lane.steps.size(); ++j) {
      const Step& step = lane.steps[j];
      if (!step.stores) continue;
      for (int64_t cell : CellsOf(step, step.store)) {
        if (cells.contains(cell)) return j;
      }
    }
    return i;
  }

  std::set<int64_t> CellsRead(const Step& step) const {
    std::set<int64_t> cells;
    for (const Operand& operand : step.operands) {
      if (operand.peer != Operand::kNoPeer) continue;
      cells.merge(CellsOf(step, operand.place));
    }
    return cells;
  }

  // Slots are counted from 0 up, the chunks of other buffers from -1 down.
  std::set<int64_t> CellsOf(const Step& step, const Place& place) const {
    std::set<int64_t> cells;
    const bool reduces = SpecOf(claim_.collective).reduces;
    int64_t slot = place.slot;
    ForEachChunk(step, total_, [&](int64_t chunk) {
      if (place.buffer == Buffer::kScratch) {
        cells.insert(slot++);
      } else if (reduces &&
                 (claim_.proofs.in_place || place.buffer == Buffer::kOutput)) {
        cells.insert(-1 - chunk);
      }
    });
    return cells;
  }

  const Algorithm& algorithm_;
  const Claim claim_;
  Schedule schedule_;
  const int64_t total_;
};

void MutateAll(const Algorithm& algorithm, Shape shape) {
  const bool rooted = SpecOf(algorithm.collective).rooted;
  for (int root : std::set<int>{0, rooted ? shape.ranks - 1 : 0}) {
    shape.root = root;
    if (algorithm.legal(shape)) Mutator(algorithm, shape).Run();
  }
}

TEST(Verifier, RefusesEveryMutantOfEverySchedule) {
  const Grid grids[] = {PackedGrid(std::vector{2, 2}),
                        PackedGrid(std::vector{3, 2}),
                        PackedGrid(std::vector{4, 1, 3})};
  for (const Algorithm& algorithm : Catalog()) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      MutateAll(algorithm, {.ranks = ranks});
    }
    for (const Grid& grid : grids) {
      // Without a grid the same has been done already.
      const Shape shape = {.ranks = RanksOf(grid), .grid = &grid};
      if (!algorithm.legal({.ranks = shape.ranks})) MutateAll(algorithm, shape);
    }
    if (testing::Test::HasFailure()) return;
  }
  for (const auto& [kind, count] : Mutator::counts()) {
    std::cout << kind << ": refused " << count.first << " of " << count.second
              << "\n";
    EXPECT_GT(count.second, 0) << kind;
  }
}

}  // namespace
}  // namespace trnccl
