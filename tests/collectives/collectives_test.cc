// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Every algorithm of the catalog, with every type and operator, against the
// interpreter, bit by bit, between threads over shared memory.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "algorithms/catalog.h"
#include "algorithms/spec.h"
#include "ccl/kernels/fold.h"
#include "gtest/gtest.h"
#include "tests/collectives/guarded_buffer.h"
#include "tests/collectives/oracle.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

enum class Where { kOutOfPlace, kInPlace };

trncclResult_t Issue(const Case& one, const std::byte* in, std::byte* out,
                     trncclComm_t comm, trncclRedOp_t premul) {
  const auto count = static_cast<size_t>(one.count);
  const auto type = static_cast<trncclDataType_t>(one.type);
  const trncclRedOp_t op = one.op == ReduceOp::kPremulSum
                               ? premul
                               : static_cast<trncclRedOp_t>(one.op);
  switch (one.algorithm->collective) {
    case Collective::kAllReduce:
      return trncclAllReduce(in, out, count, type, op, comm, nullptr);
    case Collective::kReduce:
      return trncclReduce(in, out, count, type, op, one.root, comm, nullptr);
    case Collective::kReduceScatter:
      return trncclReduceScatter(in, out, count, type, op, comm, nullptr);
    case Collective::kBroadcast:
      return trncclBroadcast(in, out, count, type, one.root, comm, nullptr);
    case Collective::kAllGather:
      return trncclAllGather(in, out, count, type, comm, nullptr);
    case Collective::kAllToAll:
      return trncclAllToAll(in, out, count, type, comm, nullptr);
    case Collective::kGather:
      return trncclGather(in, out, count, type, one.root, comm, nullptr);
    case Collective::kScatter:
      return trncclScatter(in, out, count, type, one.root, comm, nullptr);
    default:
      return trncclBarrier(comm, nullptr);
  }
}

// Where an in-place call's input lies in its output, or the other way round.
struct InPlace {
  size_t input_at = 0;  // of the one buffer
  size_t output_at = 0;
};

InPlace InPlaceOf(const Case& one, int rank) {
  const size_t block_bytes =
      static_cast<size_t>(one.count) * ElementBytes(one.type);
  switch (one.algorithm->collective) {
    case Collective::kAllGather:
      return {.input_at = rank * block_bytes};
    case Collective::kReduceScatter:
      return {.output_at = rank * block_bytes};
    case Collective::kGather:
      return {.input_at = rank == one.root ? rank * block_bytes : 0};
    case Collective::kScatter:
      return {.output_at = rank == one.root ? rank * block_bytes : 0};
    default:
      return {};
  }
}

void RunCase(const Case& one, trncclComm_t comm, int rank,
             GuardedBuffer::Memory memory) {
  const std::vector<Bytes> inputs = InputsOf(one);
  const std::vector<Bytes> expected = ExpectedOutputs(one, inputs);
  const Bytes& input = inputs[rank];
  const Bytes& output = expected[rank];
  trncclRedOp_t premul = trncclSum;
  if (one.op == ReduceOp::kPremulSum) {
    const Bytes factor = ElementOf(one.type, PremulFactorOf(rank));
    ASSERT_CALL_OK(trncclRedOpCreatePreMulSum(
        &premul, factor.data(), static_cast<trncclDataType_t>(one.type), comm));
  }
  for (const Where where : {Where::kOutOfPlace, Where::kInPlace}) {
    if (where == Where::kInPlace &&
        one.algorithm->collective == Collective::kAllToAll)
      continue;
    SCOPED_TRACE(absl::StrCat(Describe(one), " rank ", rank,
                              where == Where::kInPlace ? " in place" : ""));
    const size_t offset = 1 + static_cast<size_t>(rank);
    if (where == Where::kOutOfPlace) {
      GuardedBuffer in(input.size(), offset, memory);
      GuardedBuffer out(output.size(), offset + 2, memory);
      std::copy(input.begin(), input.end(), in.data());
      ASSERT_CALL_OK(Issue(one, in.data(), out.data(), comm, premul));
      EXPECT_TRUE(in.intact() && out.intact());
      EXPECT_TRUE(std::equal(input.begin(), input.end(), in.data()))
          << "the input was changed";
      ASSERT_TRUE(std::equal(output.begin(), output.end(), out.data()));
    } else {
      const InPlace place = InPlaceOf(one, rank);
      const size_t bytes = std::max(place.input_at + input.size(),
                                    place.output_at + output.size());
      GuardedBuffer both(bytes, offset, memory);
      std::copy(input.begin(), input.end(), both.data() + place.input_at);
      ASSERT_CALL_OK(Issue(one, both.data() + place.input_at,
                           both.data() + place.output_at, comm, premul));
      EXPECT_TRUE(both.intact());
      ASSERT_TRUE(std::equal(output.begin(), output.end(),
                             both.data() + place.output_at));
    }
  }
  if (one.op == ReduceOp::kPremulSum) {
    ASSERT_CALL_OK(trncclRedOpDestroy(premul, comm));
  }
}

std::string SettingOf(const Algorithm& row) {
  return absl::StrCat("TRNCCL_ALGORITHM=", std::string(Name(row.collective)),
                      ":", std::string(row.name));
}

// Every row that's legal without knowing nodes.
std::vector<const Algorithm*> FlatRows(int ranks) {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& row : Catalog())
    if (row.collective != Collective::kBarrier && row.legal({.ranks = ranks}))
      rows.push_back(&row);
  return rows;
}

bool Reduces(const Algorithm& row) { return SpecOf(row.collective).reduces; }

class EveryAlgorithm : public testing::TestWithParam<int> {};

// The counts where cuts fall badly: none, one, fewer than ranks, primes, and
// around the edges of segments and inline messages.
TEST_P(EveryAlgorithm, IsRightForEveryCount) {
  const int ranks = GetParam();
  constexpr int64_t kSegment = 64;
  for (const Algorithm* row : FlatRows(ranks)) {
    RunRanks(
        {.ranks = ranks,
         .settings = {SettingOf(*row), "TRNCCL_SEGMENT_BYTES=256"}},
        [&](trncclComm_t comm, int rank) {
          for (const int64_t count : {0, 1, ranks - 1, ranks, ranks + 1, 13, 31,
                                      63, 64, 65, 127, 128, 129, 257, 1021}) {
            RunCase({.algorithm = row,
                     .ranks = ranks,
                     .root = static_cast<int>(count) % ranks,
                     .count = count,
                     .segment_count = kSegment},
                    comm, rank, GuardedBuffer::Memory::kHeap);
          }
        });
  }
}

TEST_P(EveryAlgorithm, IsRightForEveryTypeAndOperator) {
  const int ranks = GetParam();
  for (const Algorithm* row : FlatRows(ranks)) {
    RunRanks({.ranks = ranks,
              .settings = {SettingOf(*row), "TRNCCL_ENGINE_MIN_BYTES=1G"}},
             [&](trncclComm_t comm, int rank) {
               for (int type = 0; type < kDataTypes; ++type) {
                 for (int op = 0; op < kReduceOps; ++op) {
                   Case one{.algorithm = row,
                            .ranks = ranks,
                            .root = type % ranks,
                            .type = static_cast<DataType>(type),
                            .op = static_cast<ReduceOp>(op),
                            .count = 37};
                   if (Reduces(*row) ? !IsSupported(one.type, one.op) : op > 0)
                     continue;
                   RunCase(one, comm, rank, GuardedBuffer::Memory::kHeap);
                 }
               }
             });
  }
}

// Slices of a tiny arena: long calls are many segments, several in flight.
TEST_P(EveryAlgorithm, IsRightAcrossManySegments) {
  const int ranks = GetParam();
  for (const Algorithm* row : FlatRows(ranks)) {
    for (const auto memory :
         {GuardedBuffer::Memory::kHeap, GuardedBuffer::Memory::kShared}) {
      RunRanks({.ranks = ranks,
                .settings = {SettingOf(*row), "TRNCCL_SEGMENT_BYTES=4096",
                             "TRNCCL_ENGINE_MIN_BYTES=1G"}},
               [&](trncclComm_t comm, int rank) {
                 RunCase({.algorithm = row,
                          .ranks = ranks,
                          .root = ranks - 1,
                          .count = 20'011,
                          .segment_count = 1024},
                         comm, rank, memory);
               });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryAlgorithm,
                         testing::Values(1, 2, 3, 4, 5, 8));

// The engine folds in rank order: the bits of the direct algorithms.
TEST(Engine, GivesTheBitsOfTheLeftFold) {
  const Algorithm* row = FindAlgorithm(Collective::kAllReduce, "two_step");
  const Algorithm* scatter =
      FindAlgorithm(Collective::kReduceScatter, "direct");
  for (const int ranks : {2, 3, 4}) {
    RunRanks({.ranks = ranks, .settings = {"TRNCCL_ENGINE_MIN_BYTES=1"}},
             [&](trncclComm_t comm, int rank) {
               for (const int64_t count : {1, 63, 1000, 100'003}) {
                 for (const Algorithm* one : {row, scatter}) {
                   for (const DataType type :
                        {DataType::kFloat32, DataType::kBFloat16}) {
                     RunCase({.algorithm = one,
                              .ranks = ranks,
                              .type = type,
                              .count = count},
                             comm, rank, GuardedBuffer::Memory::kShared);
                     trncclCommInfo_t info;
                     ASSERT_CALL_OK(trncclCommInfo(comm, &info));
                     EXPECT_STREQ(info.last_algorithm, "engine");
                   }
                 }
               }
             });
  }
}

// Heap memory on one rank, with or without leave for all to reach it.
void ExpectAlgorithm(const char* algorithm,
                     const std::vector<std::string>& settings_of_last) {
  const Algorithm* row = FindAlgorithm(Collective::kAllReduce, "two_step");
  constexpr int kRanks = 3;
  RunRanks({.ranks = kRanks,
            .settings = {"TRNCCL_ENGINE_MIN_BYTES=1", SettingOf(*row)},
            .settings_of_rank =
                [&](int rank) {
                  return rank == kRanks - 1 ? settings_of_last
                                            : std::vector<std::string>();
                }},
           [&](trncclComm_t comm, int rank) {
             RunCase({.algorithm = row, .ranks = kRanks, .count = 5000}, comm,
                     rank,
                     rank == 1 ? GuardedBuffer::Memory::kHeap
                               : GuardedBuffer::Memory::kShared);
             trncclCommInfo_t info;
             ASSERT_CALL_OK(trncclCommInfo(comm, &info));
             EXPECT_STREQ(info.last_algorithm, algorithm);
           });
}

TEST(Engine, ReachesMemoryThatNobodyHasMapped) {
  ExpectAlgorithm("engine", {});
}

TEST(Engine, LeavesItToMessagesWhereOneRankMayNotReachIt) {
  ExpectAlgorithm("two_step", {"TRNCCL_SHM_PEER_MEMORY=off"});
}

// Strict: the same bits over algorithms, lanes, segments, transports, engine.
TEST(Strict, GivesTheSameBitsHoweverItsDone) {
  constexpr int kRanks = 4;
  const Algorithm* reference =
      FindAlgorithm(Collective::kAllReduce, "one_step");
  const std::vector<std::vector<std::string>> variants = {
      {"TRNCCL_ALGORITHM=all_reduce:one_step"},
      {"TRNCCL_ALGORITHM=all_reduce:two_step", "TRNCCL_SEGMENT_BYTES=512"},
      {"TRNCCL_ALGORITHM=all_reduce:chain", "TRNCCL_LANES=2"},
      {"TRNCCL_ALGORITHM=all_reduce:chain", "TRNCCL_SEGMENT_BYTES=1000"},
      {"TRNCCL_TRANSPORT=inproc", "TRNCCL_LANES=1"},
      {"TRNCCL_ENGINE_MIN_BYTES=1"},
      {}};
  for (std::vector<std::string> settings : variants) {
    settings.push_back("TRNCCL_DETERMINISM=strict");
    SCOPED_TRACE(settings.front());
    RunRanks({.ranks = kRanks, .settings = settings}, [&](trncclComm_t comm,
                                                          int rank) {
      for (const DataType type : {DataType::kFloat32, DataType::kBFloat16,
                                  DataType::kFloat16, DataType::kFloat8E4M3}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd,
                                  ReduceOp::kAvg, ReduceOp::kPremulSum}) {
          RunCase({.algorithm = reference,
                   .ranks = kRanks,
                   .type = type,
                   .op = op,
                   .count = 3001,
                   .strict = true},
                  comm, rank, GuardedBuffer::Memory::kShared);
        }
      }
    });
  }
}

// Ranks of one process that say they are on different nodes: what will run over
// a network runs here over the hub.
RankOptions OnNodes(const Grid& grid) {
  RankOptions options{.settings = {"TRNCCL_TRANSPORT=inproc"}};
  options.ranks = 0;
  for (const auto& node : grid.nodes)
    options.ranks += static_cast<int>(node.size());
  options.settings_of_rank = [&grid](int rank) {
    size_t node = 0;
    while (std::find(grid.nodes[node].begin(), grid.nodes[node].end(), rank) ==
           grid.nodes[node].end())
      ++node;
    return std::vector<std::string>{absl::StrCat("TRNCCL_HOST_ID=node", node)};
  };
  return options;
}

const std::vector<Grid>& Grids() {
  static const auto& grids = *new std::vector<Grid>{
      {{{0}, {1}}},
      {{{0, 1}, {2, 3}}},
      {{{0, 1, 2}, {3, 4}}},
      {{{0, 2, 4, 6}, {1}, {3, 5, 7}}},
  };
  return grids;
}

TEST(Nodes, HierarchicalAlgorithmsAreRightOnEvenAndUnevenGrids) {
  for (const Grid& grid : Grids()) {
    RankOptions options = OnNodes(grid);
    for (const Algorithm& row : Catalog()) {
      const Shape shape{.ranks = options.ranks, .grid = &grid};
      if (row.legal({.ranks = options.ranks}) || !row.legal(shape)) continue;
      options.settings = {"TRNCCL_TRANSPORT=inproc", SettingOf(row)};
      RunRanks(options, [&](trncclComm_t comm, int rank) {
        for (const int64_t count : {0, 1, 7, 64, 1021}) {
          RunCase({.algorithm = &row,
                   .ranks = options.ranks,
                   .root = options.ranks - 1,
                   .count = count,
                   .grid = &grid},
                  comm, rank, GuardedBuffer::Memory::kHeap);
        }
      });
    }
  }
}

TEST(Nodes, HierarchicalAlgorithmsAreRightInManySegments) {
  for (const Grid& grid : Grids()) {
    RankOptions options = OnNodes(grid);
    for (const Algorithm& row : Catalog()) {
      const Shape shape{.ranks = options.ranks, .grid = &grid};
      if (row.legal({.ranks = options.ranks}) || !row.legal(shape)) continue;
      options.settings = {"TRNCCL_TRANSPORT=inproc", SettingOf(row),
                          "TRNCCL_SEGMENT_BYTES=4096"};
      RunRanks(options, [&](trncclComm_t comm, int rank) {
        RunCase({.algorithm = &row,
                 .ranks = options.ranks,
                 .root = 1,
                 .type = DataType::kInt32,
                 .count = 20'011,
                 .grid = &grid},
                comm, rank, GuardedBuffer::Memory::kShared);
      });
    }
  }
}

// Nodes of one, two and three ranks have three different longest messages: no
// shared memory, and that of links to one or two others.
TEST(Nodes, CutMessagesAlikeThoughTransportsDiffer) {
  const Grid grid = {{{0}, {1, 2}, {3, 4, 5}}};
  RankOptions options = OnNodes(grid);
  const auto node_of_rank = options.settings_of_rank;
  options.settings_of_rank = [&](int rank) {
    std::vector<std::string> settings = node_of_rank(rank);
    // The name that nothing has gives each thread an endpoint of its own.
    settings.push_back(absl::StrCat("TRNCCL_FABRIC_ADAPTERS=lo,of", rank));
    return settings;
  };
  const Shape shape{.ranks = options.ranks, .grid = &grid};
  for (const Algorithm& row : Catalog()) {
    if (!row.legal(shape) || row.collective == Collective::kBarrier) continue;
    options.settings = {"TRNCCL_FABRIC_PROVIDER=net",
                        "TRNCCL_FABRIC_SLICE_BYTES=8192",
                        "TRNCCL_ARENA_BYTES=64K", SettingOf(row)};
    RunRanks(options, [&](trncclComm_t comm, int rank) {
      for (const int64_t count : {1, 250, 2047, 2048, 2049, 12'289, 50'021}) {
        RunCase({.algorithm = &row,
                 .ranks = options.ranks,
                 .root = 4,
                 .type = DataType::kInt32,
                 .count = count,
                 .grid = &grid},
                comm, rank, GuardedBuffer::Memory::kHeap);
      }
    });
  }
}

TEST(Strict, GivesTheSameBitsOnAnyNodes) {
  const Algorithm* reference =
      FindAlgorithm(Collective::kAllReduce, "one_step");
  for (const Grid& grid : Grids()) {
    RankOptions options = OnNodes(grid);
    options.settings.push_back("TRNCCL_DETERMINISM=strict");
    RunRanks(options, [&](trncclComm_t comm, int rank) {
      for (const DataType type : {DataType::kFloat32, DataType::kBFloat16})
        RunCase({.algorithm = reference,
                 .ranks = options.ranks,
                 .type = type,
                 .count = 3001,
                 .strict = true},
                comm, rank, GuardedBuffer::Memory::kHeap);
    });
  }
}

TEST(Info, NamesNoAlgorithmBeforeTheFirstCollective) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int) {
    trncclCommInfo_t info;
    ASSERT_CALL_OK(trncclCommInfo(comm, &info));
    EXPECT_STREQ(info.last_algorithm, "");
    ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
    ASSERT_CALL_OK(trncclCommInfo(comm, &info));
    EXPECT_STREQ(info.last_algorithm, "dissemination");
  });
}

// Each chosen freely: whatever the planner takes is right.
TEST(Planner, ChoosesSomethingRightForEveryCollective) {
  for (const int ranks : {2, 5}) {
    RunRanks({.ranks = ranks}, [&](trncclComm_t comm, int rank) {
      for (const Algorithm* row : FlatRows(ranks)) {
        if (Reduces(*row)) continue;
        for (const int64_t count : {1, 100, 10'007, 300'001})
          RunCase({.algorithm = row,
                   .ranks = ranks,
                   .root = 1,
                   .type = DataType::kInt32,
                   .count = count},
                  comm, rank, GuardedBuffer::Memory::kHeap);
      }
    });
  }
}

}  // namespace
}  // namespace trnccl
