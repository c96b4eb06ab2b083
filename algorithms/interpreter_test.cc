// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Every row of the catalog computes what its collective means, against the
// definition written down directly.
#include "algorithms/interpreter.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "algorithms/grids.h"
#include "algorithms/spec.h"
#include "algorithms/verifier.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using Memory = InterpretedCall::Memory;

// An operator whose parts show when they're left out or applied twice.
int64_t Prepare(int64_t value) { return 3 * value + 1; }
int64_t Finish(int64_t value) { return 5 * value - 7; }

// Unique per rank, block and position.
int64_t Element(int64_t rank, int64_t block, int64_t position) {
  return (rank * 1000 + block) * 100000 + position + 1;
}

// Partial values are pairs: the value, and a mark that shows mixed-up widths.
constexpr int64_t kMark = 0x5eed;

// Of the i-th element of an operand.
int64_t Load(const InterpretedFold::Operand& operand, int64_t i,
             size_t partial_bytes) {
  const size_t bytes = operand.partial ? partial_bytes : 8;
  int64_t value[2] = {0, kMark};
  std::memcpy(value, operand.data + bytes * static_cast<size_t>(i), bytes);
  EXPECT_EQ(value[1], kMark);
  return operand.raw ? Prepare(value[0]) : value[0];
}

// `partial_bytes` is 8, or 16 for pairs.
FoldFunction Sum(size_t partial_bytes) {
  return [partial_bytes](const InterpretedFold& fold) {
    const size_t bytes = fold.partial ? partial_bytes : 8;
    for (int64_t i = 0; i < fold.count; ++i) {
      int64_t sum[2] = {0, kMark};
      for (const auto& operand : fold.operands) {
        sum[0] += Load(operand, i, partial_bytes);
      }
      if (fold.completes) sum[0] = Finish(sum[0]);
      std::memcpy(fold.result + bytes * static_cast<size_t>(i), sum, bytes);
    }
  };
}

int64_t CountOf(const InterpretedCall& call, int64_t block) {
  return call.block_counts.size() == 1
             ? call.block_counts.front()
             : call.block_counts[static_cast<size_t>(block)];
}

void Append(Bytes& bytes, int64_t value) {
  const auto* data = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), data, data + sizeof(value));
}

Bytes InputOf(const InterpretedCall& call, int rank) {
  Bytes bytes;
  const BlockRange range =
      SpecOf(call.collective).input({call.ranks, rank, call.root});
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t block = range.first + i * range.stride;
    for (int64_t k = 0; k < CountOf(call, block); ++k) {
      Append(bytes, Element(rank, block, k));
    }
  }
  return bytes;
}

int64_t Expected(const InterpretedCall& call, int64_t block, int64_t k) {
  const Spec& spec = SpecOf(call.collective);
  int64_t sum = 0;
  for (int rank = 0; rank < call.ranks; ++rank) {
    const BlockRange range = spec.input({call.ranks, rank, call.root});
    if (range.PositionOf(block) < 0) continue;
    if (!spec.reduces) return Element(rank, block, k);
    sum += Prepare(Element(rank, block, k));
  }
  return Finish(sum);
}

Bytes OutputOf(const InterpretedCall& call, int rank) {
  Bytes bytes;
  const BlockRange range =
      SpecOf(call.collective).output({call.ranks, rank, call.root});
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t block = range.first + i * range.stride;
    for (int64_t k = 0; k < CountOf(call, block); ++k) {
      Append(bytes, Expected(call, block, k));
    }
  }
  return bytes;
}

class Interpreted : public testing::TestWithParam<size_t> {
 protected:
  const Algorithm& algorithm() const { return Catalog()[GetParam()]; }

  void Check(const Schedule& schedule, InterpretedCall call) {
    std::vector<Bytes> inputs;
    std::vector<Bytes> outputs;
    for (int rank = 0; rank < call.ranks; ++rank) {
      inputs.push_back(InputOf(call, rank));
      outputs.push_back(OutputOf(call, rank));
    }
    const bool uneven_pairs = call.block_counts.size() > 1 &&
                              call.collective == Collective::kAllToAllV;
    for (Memory memory : {Memory::kOutOfPlace, Memory::kInPlace}) {
      const bool in_place = memory == Memory::kInPlace;
      if (in_place && (!algorithm().proofs.in_place || uneven_pairs)) continue;
      call.memory = memory;
      for (int64_t segment_count : {1, 3, 16, 1000}) {
        call.segment_count = segment_count;
        const auto result =
            Interpret(schedule, call, inputs, Sum(call.partial_bytes));
        ASSERT_TRUE(result.ok()) << result.status();
        ASSERT_EQ(*result, outputs)
            << call.ranks << " ranks, root " << call.root << ", block 0 has "
            << call.block_counts[0] << ", segments of " << segment_count
            << (in_place ? ", in place" : "");
      }
    }
  }

  void CheckCounts(const Shape& shape) {
    if (!algorithm().legal(shape)) return;
    const Schedule schedule = BuildSchedule(algorithm(), shape);
    const int64_t n = shape.ranks;
    for (int64_t count :
         {int64_t{0}, int64_t{1}, n - 1, n, n + 1, int64_t{17}, int64_t{101}}) {
      Check(schedule,
            {.collective = algorithm().collective,
             .ranks = shape.ranks,
             .root = shape.root,
             .block_counts = {count},
             .element_bytes = 8,
             .partial_bytes = algorithm().proofs.left_fold ? 16u : 8u});
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(Interpreted, ComputesWhatTheCollectiveMeans) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const bool rooted = SpecOf(algorithm().collective).rooted;
    for (int root = 0; root < (rooted ? ranks : 1); ++root) {
      CheckCounts({.ranks = ranks, .root = root});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Interpreted, ComputesItOnNodeGrids) {
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{
           {2, 2}, {3, 2}, {4, 1, 3}, {1, 1, 1}, {3, 3, 3}}) {
    const Grid grid = PackedGrid(nodes);
    for (int root : {0, RanksOf(grid) - 1}) {
      CheckCounts({.ranks = RanksOf(grid), .root = root, .grid = &grid});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Interpreted, ComputesUnevenBlocks) {
  if (!algorithm().proofs.uneven) return;
  Collective collective = algorithm().collective;
  if (collective == Collective::kAllGather) {
    collective = Collective::kAllGatherV;
  } else if (collective == Collective::kReduceScatter) {
    collective = Collective::kReduceScatterV;
  } else if (collective == Collective::kAllToAll) {
    collective = Collective::kAllToAllV;
  }
  if (!SpecOf(collective).uneven) return;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const Shape shape = {.ranks = ranks};
    if (!algorithm().legal(shape)) continue;
    std::vector<int64_t> counts;
    for (int64_t i = 0; i < SpecOf(collective).blocks(ranks); ++i) {
      counts.push_back(i % 3 == 1 ? 0 : (i * 7 + 5) % 23);
    }
    Check(BuildSchedule(algorithm(), shape),
          {.collective = collective,
           .ranks = ranks,
           .block_counts = counts,
           .element_bytes = 8,
           .partial_bytes = algorithm().proofs.left_fold ? 16u : 8u});
    if (HasFatalFailure()) return;
  }
}

std::string RowName(const testing::TestParamInfo<size_t>& info) {
  const Algorithm& algorithm = Catalog()[info.param];
  return std::string(Name(algorithm.collective)) + "_" +
         std::string(algorithm.name);
}

INSTANTIATE_TEST_SUITE_P(Catalog, Interpreted,
                         testing::Range(size_t{0}, Catalog().size()), RowName);

TEST(Interpreter, RefusesInputsOfTheWrongLength) {
  const Algorithm& algorithm = *FindAlgorithm(Collective::kAllReduce, "ring");
  const InterpretedCall call = {.ranks = 2, .block_counts = {4}};
  const auto schedule = BuildSchedule(algorithm, {.ranks = 2});
  EXPECT_FALSE(Interpret(schedule, call, {Bytes(4), Bytes(3)}, Sum(8)).ok());
  EXPECT_FALSE(Interpret(schedule, call, {Bytes(4)}, Sum(8)).ok());
}

}  // namespace
}  // namespace trnccl
