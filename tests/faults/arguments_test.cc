// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Arguments that can't be meant: each is refused with a text that names rank,
// call and cause, at once, and the communicator works on as if nothing had been
// called.
#include <array>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "ccl/base/types.h"
#include "ccl/kernels/fold.h"
#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"
#include "tests/faults/outcome.h"

namespace trnccl {
namespace {

using Call = std::function<trncclResult_t(trncclComm_t)>;

struct BadCall {
  Call call;
  std::vector<std::string> says;
};

// Every rank makes the bad calls, alone, and then a good one with the others.
void ExpectRefused(const std::vector<BadCall>& bad_calls) {
  RunRanks({.ranks = 2}, [&](trncclComm_t comm, int rank) {
    for (const BadCall& bad : bad_calls) {
      const Outcome outcome = OutcomeOf([&] { return bad.call(comm); });
      EXPECT_EQ(outcome.result, trncclInvalidArgument) << outcome.text;
      EXPECT_TRUE(Says(outcome, bad.says));
      EXPECT_TRUE(Says(outcome, {absl::StrCat("rank ", rank)}));
    }
    EXPECT_TRUE(Works(comm));
  });
}

trncclDataType_t TypeOf(int value) {
  return static_cast<trncclDataType_t>(value);
}

std::array<float, 64> a;
std::array<float, 64> b;

TEST(BadArguments, NullBuffersAreRefused) {
  ExpectRefused({
      {[](trncclComm_t comm) {
         return trncclAllReduce(nullptr, b.data(), 4, trncclFloat32, trncclSum,
                                comm, nullptr);
       },
       {"all_reduce", "send is null", "16 bytes"}},
      {[](trncclComm_t comm) {
         return trncclAllGather(a.data(), nullptr, 4, trncclFloat32, comm,
                                nullptr);
       },
       {"all_gather", "recv is null", "32 bytes"}},
      {[](trncclComm_t comm) {
         return trncclSend(nullptr, 4, trncclFloat32, 0, 0, comm, nullptr);
       },
       {"send of 16 bytes to rank 0", "buffer is null"}},
      {[](trncclComm_t comm) {
         return trncclRecv(nullptr, 4, trncclFloat32, 0, 0, nullptr, comm,
                           nullptr);
       },
       {"receive of up to 16 bytes from rank 0", "buffer is null"}},
  });
}

TEST(BadArguments, NullArraysAreRefused) {
  static const std::array<size_t, 2> counts = {1, 1};
  ExpectRefused({
      {[](trncclComm_t comm) {
         return trncclAllGatherV(a.data(), b.data(), nullptr, nullptr,
                                 trncclFloat32, comm, nullptr);
       },
       {"all_gather_v", "counts is null"}},
      {[](trncclComm_t comm) {
         return trncclReduceScatterV(a.data(), b.data(), nullptr, trncclFloat32,
                                     trncclSum, comm, nullptr);
       },
       {"reduce_scatter_v", "counts is null"}},
      {[](trncclComm_t comm) {
         return trncclAllToAllV(a.data(), nullptr, nullptr, b.data(),
                                counts.data(), nullptr, trncclFloat32, comm,
                                nullptr);
       },
       {"all_to_all_v", "counts is null"}},
      {[](trncclComm_t comm) {
         return trncclAllToAllV(a.data(), counts.data(), nullptr, b.data(),
                                nullptr, nullptr, trncclFloat32, comm, nullptr);
       },
       {"all_to_all_v", "counts is null"}},
  });
}

// Also those whose lowest byte would be a type.
TEST(BadArguments, UnknownTypesAreRefused) {
  std::vector<BadCall> bad;
  for (const int type : {-1, -246, 17, 99, 255, 256, 256 + 10, 1 << 30}) {
    const std::string named = "unknown data type";
    bad.push_back({[type](trncclComm_t comm) {
                     return trncclAllReduce(a.data(), b.data(), 4, TypeOf(type),
                                            trncclSum, comm, nullptr);
                   },
                   {"all_reduce", named}});
    bad.push_back({[type](trncclComm_t comm) {
                     return trncclBroadcast(a.data(), b.data(), 4, TypeOf(type),
                                            0, comm, nullptr);
                   },
                   {"broadcast", named}});
    bad.push_back({[type](trncclComm_t comm) {
                     return trncclSend(a.data(), 4, TypeOf(type), 0, 0, comm,
                                       nullptr);
                   },
                   {"send", named}});
    bad.push_back({[type](trncclComm_t comm) {
                     return trncclRecv(a.data(), 4, TypeOf(type), 0, 0, nullptr,
                                       comm, nullptr);
                   },
                   {"receive", named}});
    bad.push_back({[type](trncclComm_t comm) {
                     trncclRedOp_t op = 0;
                     return trncclRedOpCreatePreMulSum(&op, a.data(),
                                                       TypeOf(type), comm);
                   },
                   {"trncclRedOpCreatePreMulSum", named}});
  }
  ExpectRefused(bad);
}

TEST(BadArguments, UnknownOperatorsAreRefused) {
  std::vector<BadCall> bad;
  for (const int op : {-1, 5, 9, 63, 64, 1000, std::numeric_limits<int>::min(),
                       std::numeric_limits<int>::max()}) {
    bad.push_back({[op](trncclComm_t comm) {
                     return trncclReduceScatter(a.data(), b.data(), 4,
                                                trncclFloat32, op, comm,
                                                nullptr);
                   },
                   {"reduce_scatter", absl::StrCat("number ", op)}});
    bad.push_back(
        {[op](trncclComm_t comm) { return trncclRedOpDestroy(op, comm); },
         {"trncclRedOpDestroy", absl::StrCat("number ", op)}});
  }
  ExpectRefused(bad);
}

TEST(BadArguments, PairsWithoutMeaningAreRefused) {
  std::vector<BadCall> bad;
  for (int type = 0; type < kDataTypes; ++type) {
    for (int op = 0; op < kReduceOps; ++op) {
      if (op == static_cast<int>(ReduceOp::kPremulSum) ||
          IsSupported(static_cast<DataType>(type), static_cast<ReduceOp>(op)))
        continue;
      const std::vector<std::string> says = {
          std::string(Name(static_cast<DataType>(type))),
          std::string(Name(static_cast<ReduceOp>(op)))};
      bad.push_back({[=](trncclComm_t comm) {
                       return trncclAllReduce(a.data(), b.data(), 4,
                                              TypeOf(type), op, comm, nullptr);
                     },
                     says});
      bad.push_back({[=](trncclComm_t comm) {
                       return trncclReduce(a.data(), b.data(), 4, TypeOf(type),
                                           op, 0, comm, nullptr);
                     },
                     says});
    }
  }
  ASSERT_GT(bad.size(), 40u);
  ExpectRefused(bad);
}

TEST(BadArguments, RootsAndPeersOutOfRangeAreRefused) {
  std::vector<BadCall> bad;
  for (const int rank : {-1, 2, 1 << 30, std::numeric_limits<int>::min()}) {
    const std::string root = absl::StrCat("root ", rank);
    bad.push_back({[rank](trncclComm_t comm) {
                     return trncclBroadcast(a.data(), b.data(), 4,
                                            trncclFloat32, rank, comm, nullptr);
                   },
                   {"broadcast", root, "0..1"}});
    bad.push_back({[rank](trncclComm_t comm) {
                     return trncclReduce(a.data(), b.data(), 4, trncclFloat32,
                                         trncclSum, rank, comm, nullptr);
                   },
                   {"reduce", root, "0..1"}});
    bad.push_back({[rank](trncclComm_t comm) {
                     return trncclGather(a.data(), b.data(), 4, trncclFloat32,
                                         rank, comm, nullptr);
                   },
                   {"gather", root, "0..1"}});
    bad.push_back({[rank](trncclComm_t comm) {
                     return trncclScatter(a.data(), b.data(), 4, trncclFloat32,
                                          rank, comm, nullptr);
                   },
                   {"scatter", root, "0..1"}});
    bad.push_back({[rank](trncclComm_t comm) {
                     return trncclSend(a.data(), 4, trncclFloat32, rank, 0,
                                       comm, nullptr);
                   },
                   {"send", "only ranks 0 to 1"}});
  }
  bad.push_back({[](trncclComm_t comm) {
                   return trncclSend(a.data(), 4, trncclFloat32, 0, -1, comm,
                                     nullptr);
                 },
                 {"send", "tags are 0 or more"}});
  bad.push_back({[](trncclComm_t comm) {
                   return trncclRecv(a.data(), 4, trncclFloat32, -2, 0, nullptr,
                                     comm, nullptr);
                 },
                 {"receive", "only ranks 0 to 1"}});
  ExpectRefused(bad);
}

TEST(BadArguments, CountsThatFitInNoMemoryAreRefused) {
  std::vector<BadCall> bad;
  for (const size_t count :
       {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4, SIZE_MAX / 4 + 2,
        static_cast<size_t>(-1000), size_t{1} << 60, size_t{1} << 56}) {
    bad.push_back({[count](trncclComm_t comm) {
                     return trncclAllReduce(a.data(), b.data(), count,
                                            trncclFloat32, trncclSum, comm,
                                            nullptr);
                   },
                   {"all_reduce", "fit in memory"}});
    bad.push_back({[count](trncclComm_t comm) {
                     return trncclSend(a.data(), count, trncclFloat32, 0, 0,
                                       comm, nullptr);
                   },
                   {"send", "fit in memory"}});
    bad.push_back({[count](trncclComm_t comm) {
                     return trncclRecv(a.data(), count, trncclFloat32, 0, 0,
                                       nullptr, comm, nullptr);
                   },
                   {"receive", "fit in memory"}});
    bad.push_back({[count](trncclComm_t comm) {
                     const std::array<size_t, 2> counts = {count, 1};
                     return trncclAllGatherV(a.data(), b.data(), counts.data(),
                                             nullptr, trncclFloat32, comm,
                                             nullptr);
                   },
                   {"all_gather_v", "fit in memory"}});
    bad.push_back({[count](trncclComm_t comm) {
                     const std::array<size_t, 2> counts = {1, 1};
                     const std::array<size_t, 2> places = {0, count};
                     return trncclAllGatherV(a.data(), b.data(), counts.data(),
                                             places.data(), trncclFloat32, comm,
                                             nullptr);
                   },
                   {"all_gather_v", "fit in memory"}});
  }
  ExpectRefused(bad);
}

TEST(BadArguments, OverlapIsRefusedAndInPlaceIsTaken) {
  ExpectRefused({
      {[](trncclComm_t comm) {
         return trncclAllReduce(a.data(), a.data() + 1, 4, trncclFloat32,
                                trncclSum, comm, nullptr);
       },
       {"all_reduce", "overlap", "in place"}},
      {[](trncclComm_t comm) {
         return trncclAllToAll(a.data(), a.data(), 4, trncclFloat32, comm,
                               nullptr);
       },
       {"all_to_all", "overlap", "can't be in place"}},
      {[](trncclComm_t comm) {
         const std::array<size_t, 2> counts = {3, 3};
         const std::array<size_t, 2> places = {0, 2};
         return trncclAllGatherV(a.data(), b.data(), counts.data(),
                                 places.data(), trncclFloat32, comm, nullptr);
       },
       {"all_gather_v", "displacements", "overlap"}},
  });
}

// Null where there's nothing to do isn't bad.
TEST(BadArguments, NothingToMoveNeedsNoBuffers) {
  RunRanks({.ranks = 2}, [&](trncclComm_t comm, int) {
    EXPECT_CALL_OK(trncclAllReduce(nullptr, nullptr, 0, trncclFloat32,
                                   trncclSum, comm, nullptr));
    EXPECT_CALL_OK(
        trncclAllToAll(nullptr, nullptr, 0, trncclInt8, comm, nullptr));
    EXPECT_TRUE(Works(comm));
  });
}

TEST(BadArguments, NullHandlesAreRefused) {
  const auto refused = [](trncclResult_t result) {
    EXPECT_EQ(result, trncclInvalidArgument);
    EXPECT_NE(std::string(trncclGetLastError(nullptr)).find("null"),
              std::string::npos)
        << trncclGetLastError(nullptr);
  };
  int number = 0;
  trncclResult_t error = trncclSuccess;
  refused(trncclGetVersion(nullptr));
  refused(trncclGetUniqueId(nullptr));
  refused(trncclCommInitRank(nullptr, 1, {}, 0));
  refused(trncclCommSplit(nullptr, 0, 0, nullptr, nullptr));
  refused(trncclCommFinalize(nullptr));
  refused(trncclCommDestroy(nullptr));
  refused(trncclCommAbort(nullptr));
  refused(trncclCommGetAsyncError(nullptr, &error));
  refused(trncclCommCount(nullptr, &number));
  refused(trncclCommUserRank(nullptr, &number));
  refused(trncclCommInfo(nullptr, nullptr));
  refused(trncclCommSetTimeout(nullptr, 1));
  refused(trncclCommDumpCalls(nullptr, nullptr));
  refused(trncclCommDescribeRank(nullptr, 0, nullptr));
  refused(trncclCommGetRankState(nullptr, 0, nullptr));
  refused(trncclMemAlloc(nullptr, 1));
  refused(trncclRequestTest(nullptr, &number));
  refused(trncclRequestWait(nullptr, 1));
  refused(trncclRequestFree(nullptr));
  refused(trncclBarrier(nullptr, nullptr));
  refused(trncclAllReduce(a.data(), b.data(), 4, trncclFloat32, 1000, nullptr,
                          nullptr));
  refused(trncclSend(a.data(), 4, trncclFloat32, 0, 0, nullptr, nullptr));
  EXPECT_EQ(trncclMemFree(nullptr), trncclSuccess);
  EXPECT_EQ(trncclMemFree(&number), trncclInvalidArgument);
  RunRanks({.ranks = 2}, [&](trncclComm_t comm, int) {
    void* handle = nullptr;
    refused(trncclCommCount(comm, nullptr));
    refused(trncclCommUserRank(comm, nullptr));
    refused(trncclCommInfo(comm, nullptr));
    refused(trncclCommGetAsyncError(comm, nullptr));
    refused(trncclCommDumpCalls(comm, nullptr));
    refused(trncclCommDescribeRank(comm, 0, nullptr));
    refused(trncclCommGetRankState(comm, 0, nullptr));
    for (const int rank : {-1, 2}) {
      char* text = nullptr;
      EXPECT_EQ(trncclCommDescribeRank(comm, rank, &text),
                trncclInvalidArgument);
      trncclRankState_t state = trncclRankPresent;
      EXPECT_EQ(trncclCommGetRankState(comm, rank, &state),
                trncclInvalidArgument);
    }
    refused(trncclCommSplit(comm, 0, 0, nullptr, nullptr));
    refused(trncclRedOpCreatePreMulSum(nullptr, a.data(), trncclFloat32, comm));
    refused(trncclCommRegister(comm, nullptr, 1, &handle));
    refused(trncclCommDeregister(comm, nullptr));
    EXPECT_EQ(trncclCommSetTimeout(comm, 0), trncclInvalidArgument);
    EXPECT_EQ(trncclCommSetTimeout(comm, -5), trncclInvalidArgument);
    EXPECT_TRUE(Works(comm));
  });
}

// Nothing of a group with a bad call is started, on any rank.
TEST(BadArguments, ABadCallRefusesItsGroup) {
  RunRanks({.ranks = 2}, [&](trncclComm_t comm, int) {
    std::array<float, 4> in = {1, 2, 3, 4};
    std::array<float, 4> out = {};
    EXPECT_CALL_OK(trncclGroupStart());
    EXPECT_CALL_OK(trncclAllReduce(in.data(), out.data(), 4, trncclFloat32,
                                   trncclSum, comm, nullptr));
    EXPECT_EQ(trncclAllReduce(in.data(), nullptr, 4, trncclFloat32, trncclSum,
                              comm, nullptr),
              trncclInvalidArgument);
    const Outcome outcome = OutcomeOf([] { return trncclGroupEnd(); });
    EXPECT_EQ(outcome.result, trncclInvalidArgument);
    EXPECT_TRUE(Says(outcome, {"all_reduce", "recv is null"}));
    EXPECT_EQ(out[0], 0);
    EXPECT_EQ(trncclGroupEnd(), trncclInvalidUsage);
    EXPECT_TRUE(Works(comm));
  });
}

TEST(BadArguments, SplitRefusesBadColors) {
  RunRanks({.ranks = 2}, [&](trncclComm_t comm, int rank) {
    trncclComm_t child = nullptr;
    const Outcome outcome = OutcomeOf(
        [&] { return trncclCommSplit(comm, -7, 0, &child, nullptr); });
    EXPECT_EQ(outcome.result, trncclInvalidArgument);
    EXPECT_TRUE(Says(outcome, {absl::StrCat("rank ", rank), "color -7"}));
    EXPECT_TRUE(Works(comm));
  });
}

}  // namespace
}  // namespace trnccl
