// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// One rank makes another call than the rest. Every rank hears of it soon, by an
// error that names both ranks and both calls, and nothing is overrun.
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"
#include "tests/faults/outcome.h"

namespace trnccl {
namespace {

enum class Memory { kHeap, kShared };

// Two buffers with room for `count` float64 from each of 4 ranks, and no more:
// AddressSanitizer sees what goes beyond, on the heap.
class Buffers {
 public:
  Buffers(size_t count, Memory memory) : bytes_(count * 4 * sizeof(double)) {
    for (void*& buffer : buffers_) {
      if (memory == Memory::kHeap) {
        heap_.push_back(std::make_unique<std::byte[]>(bytes_));
        buffer = heap_.back().get();
      } else {
        EXPECT_CALL_OK(trncclMemAlloc(&buffer, bytes_));
      }
    }
  }
  ~Buffers() {
    if (!heap_.empty()) return;
    for (void* buffer : buffers_) EXPECT_CALL_OK(trncclMemFree(buffer));
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  void* send() const { return buffers_[0]; }
  void* recv() const { return buffers_[1]; }

 private:
  size_t bytes_;
  std::array<void*, 2> buffers_ = {};
  std::vector<std::unique_ptr<std::byte[]>> heap_;
};

struct Site {
  const Buffers& buffers;
  size_t count;
  trncclComm_t comm;
};
using Call = std::function<trncclResult_t(const Site&)>;

Call AllReduce(trncclDataType_t type, trncclRedOp_t op, size_t more = 0) {
  return [=](const Site& at) {
    return trncclAllReduce(at.buffers.send(), at.buffers.recv(),
                           at.count + more, type, op, at.comm, nullptr);
  };
}

Call AllGather(size_t more = 0) {
  return [=](const Site& at) {
    return trncclAllGather(at.buffers.send(), at.buffers.recv(),
                           at.count + more, trncclFloat32, at.comm, nullptr);
  };
}

Call ReduceScatter() {
  return [](const Site& at) {
    return trncclReduceScatter(at.buffers.send(), at.buffers.recv(), at.count,
                               trncclFloat32, trncclSum, at.comm, nullptr);
  };
}

Call AllToAll(size_t less = 0) {
  return [=](const Site& at) {
    return trncclAllToAll(at.buffers.send(), at.buffers.recv(), at.count - less,
                          trncclFloat32, at.comm, nullptr);
  };
}

Call Broadcast(int root) {
  return [=](const Site& at) {
    return trncclBroadcast(at.buffers.send(), at.buffers.recv(), at.count,
                           trncclFloat32, root, at.comm, nullptr);
  };
}

Call Reduce(int root) {
  return [=](const Site& at) {
    return trncclReduce(at.buffers.send(), at.buffers.recv(), at.count,
                        trncclFloat32, trncclSum, root, at.comm, nullptr);
  };
}

Call Scatter(int root) {
  return [=](const Site& at) {
    return trncclScatter(at.buffers.send(), at.buffers.recv(), at.count,
                         trncclFloat32, root, at.comm, nullptr);
  };
}

Call Barrier() {
  return [](const Site& at) { return trncclBarrier(at.comm, nullptr); };
}

// Rank 0 brings `more` elements more than it does elsewhere.
Call AllGatherV(size_t more = 0) {
  return [=](const Site& at) {
    std::array<size_t, 4> counts = {at.count + more, at.count, at.count,
                                    at.count};
    return trncclAllGatherV(at.buffers.send(), at.buffers.recv(), counts.data(),
                            nullptr, trncclFloat32, at.comm, nullptr);
  };
}

// Every pair but those of this rank has `count` elements, these have fewer.
Call AllToAllV(size_t less = 0) {
  return [=](const Site& at) {
    std::array<size_t, 4> counts = {};
    counts.fill(at.count - less);
    return trncclAllToAllV(at.buffers.send(), counts.data(), nullptr,
                           at.buffers.recv(), counts.data(), nullptr,
                           trncclFloat32, at.comm, nullptr);
  };
}

struct Disagreement {
  const char* name;
  Call call;
  Call odd_call;
  std::vector<std::string> says;  // both calls
};

const std::vector<Disagreement>& Disagreements() {
  static const auto& all = *new std::vector<Disagreement>{
      {"Kind",
       AllReduce(trncclFloat32, trncclSum),
       AllGather(),
       {"all_reduce #1", "all_gather #1"}},
      {"KindOfTwoThatReduce",
       AllReduce(trncclFloat32, trncclSum),
       ReduceScatter(),
       {"all_reduce #1", "reduce_scatter #1"}},
      {"BarrierOrNot",
       Barrier(),
       AllReduce(trncclFloat32, trncclSum),
       {"all_reduce #1", "barrier #1"}},
      {"Type",
       AllReduce(trncclFloat32, trncclSum),
       AllReduce(trncclInt32, trncclSum),
       {"float32", "int32"}},
      {"SizeOfType",
       AllReduce(trncclFloat32, trncclSum),
       AllReduce(trncclFloat64, trncclSum),
       {"float32", "float64"}},
      {"Operator",
       AllReduce(trncclFloat32, trncclSum),
       AllReduce(trncclFloat32, trncclMax),
       {"float32 sum", "float32 max"}},
      {"Count",
       AllReduce(trncclFloat32, trncclSum),
       AllReduce(trncclFloat32, trncclSum, 1),
       {"count"}},
      {"MuchMore",
       AllReduce(trncclFloat32, trncclSum),
       AllReduce(trncclFloat32, trncclSum, 3),
       {"count"}},
      {"CountOfAllGather", AllGather(), AllGather(1), {"count"}},
      {"CountOfAllToAll", AllToAll(), AllToAll(1), {"count"}},
      {"CountsOfAllGatherV", AllGatherV(), AllGatherV(1), {"counts"}},
      {"CountsOfAPair", AllToAllV(), AllToAllV(1), {"all_to_all_v"}},
      {"ReceiversOnly", Scatter(0), Broadcast(1), {"scatter", "broadcast"}},
      {"RootOfReduce", Reduce(0), Reduce(1), {"root 0", "root 1"}},
  };
  return all;
}

// An error of ranks that disagree, named so that both sides can be found.
void ExpectNamed(const Outcome& outcome, const Disagreement& disagreement,
                 int odd) {
  EXPECT_EQ(outcome.result, trncclRemoteError) << outcome.text;
  EXPECT_TRUE(Says(outcome, {"ranks disagree", absl::StrCat("rank ", odd)}));
  EXPECT_TRUE(Says(outcome, disagreement.says));
  EXPECT_LT(outcome.took_ms, kSoonMs) << outcome.text;
}

struct Scene {
  int ranks;
  int odd;  // the rank
  size_t count;
  Memory memory;
};

void Play(const Disagreement& disagreement, const Scene& scene) {
  SCOPED_TRACE(absl::StrCat(disagreement.name, ": ", scene.ranks,
                            " ranks, rank ", scene.odd, " is odd, count ",
                            scene.count,
                            scene.memory == Memory::kShared ? ", shared" : ""));
  RunRanks({.ranks = scene.ranks, .settings = {"TRNCCL_LOG_FILE=/dev/null"}},
           [&](trncclComm_t comm, int rank) {
             const Buffers buffers(scene.count + 4, scene.memory);
             const Site site{buffers, scene.count, comm};
             const Call& call =
                 rank == scene.odd ? disagreement.odd_call : disagreement.call;
             const Outcome first = OutcomeOf([&] { return call(site); });
             if (first.result != trncclSuccess) {
               ExpectNamed(first, disagreement, scene.odd);
             } else {
               // It had all it needed before the others found out.
               const Outcome next =
                   OutcomeOf([&] { return trncclBarrier(comm, nullptr); });
               EXPECT_EQ(next.result, trncclRemoteError);
               EXPECT_TRUE(Says(next, {"ranks disagree"}));
               EXPECT_LT(next.took_ms, kSoonMs);
             }
             const Outcome again =
                 OutcomeOf([&] { return trncclBarrier(comm, nullptr); });
             EXPECT_EQ(again.result, trncclRemoteError);
             EXPECT_TRUE(Says(again, {"ranks disagree"}));
             trncclResult_t error = trncclSuccess;
             EXPECT_CALL_OK(trncclCommGetAsyncError(comm, &error));
             EXPECT_EQ(error, trncclRemoteError);
             EXPECT_EQ(again.text, trncclGetLastError(comm));
           });
}

class RanksThatDisagree : public testing::TestWithParam<Disagreement> {};

TEST_P(RanksThatDisagree, AllHearOfBothCalls) {
  for (const int ranks : {2, 3, 4}) {
    for (const size_t count : {size_t{4}, size_t{3000}, size_t{200'000}}) {
      const int odd = static_cast<int>(count / 1000 + ranks) % ranks;
      if (ranks != 4) Play(GetParam(), {ranks, odd, count, Memory::kHeap});
      if (ranks != 2) Play(GetParam(), {ranks, odd, count, Memory::kShared});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, RanksThatDisagree,
                         testing::ValuesIn(Disagreements()),
                         [](const auto& one) {
                           return std::string(one.param.name);
                         });

// Each waits for the other, and neither has sent anything that would tell.
TEST(RanksThatDisagree, FindOutWhereEachWaitsForTheOther) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    const Buffers buffers(4, Memory::kHeap);
    const Site site{buffers, 4, comm};
    const Outcome outcome =
        OutcomeOf([&] { return Broadcast(1 - rank)(site); });
    EXPECT_EQ(outcome.result, trncclRemoteError);
    EXPECT_TRUE(Says(outcome, {"rank 0", "root 1", "rank 1", "root 0"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

// A rank leaves one out: its next call meets the others' one.
TEST(RanksThatDisagree, AreFoundWhereOneSkipsACall) {
  for (const int ranks : {2, 3, 4}) {
    RunRanks({.ranks = ranks}, [](trncclComm_t comm, int rank) {
      const Buffers buffers(100, Memory::kHeap);
      const Site site{buffers, 100, comm};
      EXPECT_TRUE(Works(comm));
      std::vector<Call> calls = {AllGather(), AllReduce(trncclInt32, trncclMax),
                                 Barrier()};
      if (rank == 1) calls.erase(calls.begin());
      Outcome outcome;
      for (const Call& call : calls) {
        if (outcome.result == trncclSuccess)
          outcome = OutcomeOf([&] { return call(site); });
      }
      EXPECT_EQ(outcome.result, trncclRemoteError);
      EXPECT_TRUE(Says(outcome, {"rank 1", "all_gather #2", "all_reduce #2"}));
    });
  }
}

// Who is in no call finds it in the communicator's state.
TEST(RanksThatDisagree, AreToldToWhoIsInNoCall) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    const Buffers buffers(100, Memory::kHeap);
    const Site site{buffers, 100, comm};
    // Rank 2 is at something else all the time. Of the two others each finds
    // out by its own or the other's.
    if (rank < 2) {
      const Outcome outcome = OutcomeOf([&] {
        return rank == 0 ? AllToAll()(site)
                         : AllReduce(trncclInt32, trncclMax)(site);
      });
      EXPECT_EQ(outcome.result, trncclRemoteError) << outcome.text;
      return;
    }
    trncclResult_t error = trncclSuccess;
    const Outcome outcome = OutcomeOf([&] {
      while (error == trncclSuccess) {
        EXPECT_CALL_OK(trncclCommGetAsyncError(comm, &error));
      }
      return trncclBarrier(comm, nullptr);
    });
    EXPECT_EQ(error, trncclRemoteError);
    EXPECT_EQ(outcome.result, trncclRemoteError);
    EXPECT_TRUE(Says(outcome, {"all_to_all", "all_reduce", "origin: rank "}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

// Who needed nothing from others has returned, and learns of it by its state.
TEST(RanksThatDisagree, AreToldAfterTheyReturned) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    EXPECT_TRUE(Works(comm));
    std::array<float, 12> buffer = {};
    const auto gather = [&](int root) {
      return trncclGather(buffer.data(), buffer.data() + 3, 3, trncclFloat32,
                          root, comm, nullptr);
    };
    if (rank == 1) {
      const Outcome outcome = OutcomeOf([&] { return gather(1); });
      EXPECT_EQ(outcome.result, trncclRemoteError);
      EXPECT_TRUE(Says(outcome, {"root 1", "root 2", "gather #2"}));
      return;
    }
    EXPECT_CALL_OK(gather(rank == 0 ? 2 : 1));
    trncclResult_t error = trncclSuccess;
    const Outcome outcome = OutcomeOf([&] {
      while (error == trncclSuccess) {
        EXPECT_CALL_OK(trncclCommGetAsyncError(comm, &error));
      }
      return trncclBarrier(comm, nullptr);
    });
    EXPECT_EQ(error, trncclRemoteError);
    EXPECT_TRUE(Says(outcome, {"root 1", "root 2", "gather #2"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

// Those who needed nothing from others are in no call, and don't ask: who waits
// for one of them sees what it has called, or is told if they leave.
enum class Afterwards { kStay, kLeave };
void ExpectFound(Afterwards afterwards) {
  using RootedCall = trncclResult_t (*)(void*, int, trncclComm_t);
  const std::vector<RootedCall> calls = {
      [](void* data, int root, trncclComm_t comm) {
        return trncclBroadcast(data, data, 4, trncclFloat32, root, comm,
                               nullptr);
      },
      [](void* data, int root, trncclComm_t comm) {
        return trncclReduce(data, data, 4, trncclFloat32, trncclSum, root, comm,
                            nullptr);
      }};
  for (const RootedCall& call : calls) {
    std::atomic<int> ended = 0;
    std::atomic<int> found = 0;
    RunRanks({.ranks = 4}, [&](trncclComm_t comm, int rank) {
      EXPECT_TRUE(Works(comm));
      std::array<float, 4> data = {};
      const Outcome outcome =
          OutcomeOf([&] { return call(data.data(), rank == 2 ? 1 : 0, comm); });
      if (outcome.result != trncclSuccess) {
        ++found;
        EXPECT_EQ(outcome.result, trncclRemoteError);
        EXPECT_TRUE(Says(outcome, {"#2 (float32", "root 1", "root 0"}));
        EXPECT_LT(outcome.took_ms, kSoonMs);
      }
      ++ended;
      while (afterwards == Afterwards::kStay && ended.load() < 4) sched_yield();
    });
    EXPECT_GE(found.load(), 1);
  }
}
TEST(RanksThatDisagree, AreFoundThoughTheOthersHaveReturned) {
  ExpectFound(Afterwards::kStay);
}
TEST(RanksThatDisagree, AreFoundThoughTheOthersHaveLeft) {
  ExpectFound(Afterwards::kLeave);
}

// A communicator made by a split fails by itself: its parent goes on.
TEST(RanksThatDisagree, FailTheirChildAlone) {
  RunRanks({.ranks = 3}, [](trncclComm_t parent, int rank) {
    trncclComm_t child = nullptr;
    ASSERT_CALL_OK(trncclCommSplit(parent, 0, -rank, &child, nullptr));
    const Buffers buffers(100, Memory::kHeap);
    const Site site{buffers, 100, child};
    const Outcome outcome = OutcomeOf([&] {
      return rank == 0 ? Barrier()(site)
                       : AllReduce(trncclFloat32, trncclSum)(site);
    });
    EXPECT_EQ(outcome.result, trncclRemoteError);
    EXPECT_TRUE(Says(outcome, {"rank 2", "barrier #1", "all_reduce #1"}));
    EXPECT_TRUE(Works(parent));
    EXPECT_CALL_OK(trncclCommDestroy(child));
    EXPECT_TRUE(Works(parent));
  });
}

}  // namespace
}  // namespace trnccl
