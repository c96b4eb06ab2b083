// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/shm_engine.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transports/shared_memory.h"

namespace trnccl {
namespace {

constexpr int kMaxRanks = 5;
constexpr size_t kCanaryBytes = 64;
constexpr std::byte kCanary{0xa5};

class SumOfInts final : public EngineFold {
 public:
  void Fold(std::span<const std::byte* const> inputs,
            std::span<std::byte* const> results, size_t count) const override {
    for (size_t i = 0; i < count; ++i) {
      int32_t sum = 0;
      for (const std::byte* input : inputs) {
        int32_t value;
        std::memcpy(&value, input + i * sizeof(value), sizeof(value));
        sum += value;
      }
      for (std::byte* result : results) {
        std::memcpy(result + i * sizeof(sum), &sum, sizeof(sum));
      }
    }
  }
};

struct GatedEngine {
  std::unique_ptr<shm::Gate> gate;
  std::unique_ptr<Engine> engine;

  Engine* operator->() const { return engine.get(); }
};

// What the ranks share in the executor's place: offers and barriers.
struct Board {
  std::atomic<int> arrived;
  std::atomic<bool> failed;  // nobody need wait any more
  Offer offers[kMaxRanks];
  std::atomic<uint32_t> inside[kMaxRanks];
  std::atomic<uint32_t> left[kMaxRanks];
  std::atomic<pid_t> pids[kMaxRanks];  // where each is a process of its own

  GatedEngine EngineOf(int rank, int ranks) {
    const auto words = [this](int r) {
      return shm::GateWords{.inside = &inside[r], .left = &left[r]};
    };
    std::vector<shm::Gate::Peer> peers;
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank) peers.push_back({peer, words(peer)});
    auto gate = std::make_unique<shm::Gate>(words(rank), std::move(peers));
    ShmEngineOptions options = {.membership = {.rank = rank, .ranks = ranks},
                                .reaches_unmapped = true,
                                .gate = gate.get()};
    for (int peer = 0; peer < ranks; ++peer)
      options.pids.push_back(pids[peer] != 0 ? pids[peer].load() : getpid());
    auto engine = MakeShmEngine(options);
    return {std::move(gate), std::move(engine)};
  }

  void Barrier(int ranks) {
    const int mine = arrived.fetch_add(1);
    const int all = (mine / ranks + 1) * ranks;
    while (arrived.load() < all && !failed.load()) sched_yield();
  }
};

enum class Place { kOut, kIn };

// Of the buffers: mapped by all, by nobody, or by nobody on odd ranks.
enum class Memory { kShared, kHeap, kMixed };

struct Case {
  Collective collective = Collective::kAllReduce;
  int64_t count = 0;
  Place place = Place::kOut;
  int ranks = 2;
  int root = 0;
  Memory memory = Memory::kShared;

  bool on_heap(int rank) const {
    return memory == Memory::kHeap || (memory == Memory::kMixed && rank % 2);
  }
  bool in_blocks() const {
    return collective == Collective::kReduceScatter ||
           collective == Collective::kScatter ||
           collective == Collective::kAllToAll;
  }
  bool out_blocks() const {
    return collective == Collective::kAllGather ||
           collective == Collective::kGather ||
           collective == Collective::kAllToAll;
  }
  std::string Name() const {
    return absl::StrCat(std::string(trnccl::Name(collective)), " of ", count,
                        place == Place::kIn ? " in place" : "",
                        memory == Memory::kShared ? "" : " unmapped",
                        ", ranks ", ranks, ", root ", root);
  }
};

int32_t Value(int rank, int64_t index) {
  return rank * 1'000'003 + static_cast<int32_t>(index * 7 + 1);
}

// Element `index` of the output of `rank`, or nothing if it has no output.
int32_t Expected(const Case& c, int rank, int64_t index) {
  const int64_t block = index / c.count;
  const int64_t within = index % c.count;
  int32_t sum = 0;
  switch (c.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      for (int r = 0; r < c.ranks; ++r) sum += Value(r, index);
      return sum;
    case Collective::kReduceScatter:
      for (int r = 0; r < c.ranks; ++r) sum += Value(r, rank * c.count + index);
      return sum;
    case Collective::kAllGather:
    case Collective::kGather:
      return Value(static_cast<int>(block), within);
    case Collective::kBroadcast:
      return Value(c.root, index);
    case Collective::kScatter:
      return Value(c.root, rank * c.count + index);
    default:
      return Value(static_cast<int>(block), rank * c.count + within);
  }
}

// A rank's buffers in shared memory, with canaries around the output. In place
// one buffer is both, the smaller lying in the larger by the collective's rule.
class Buffers {
 public:
  Buffers(const Case& c, int rank) : case_(c), rank_(rank) {
    const auto block = static_cast<size_t>(c.count) * sizeof(int32_t);
    const auto ranks = static_cast<size_t>(c.ranks);
    input_bytes_ = c.in_blocks() ? ranks * block : block;
    output_bytes_ = c.out_blocks() ? ranks * block : block;
    const size_t bytes = input_bytes_ + output_bytes_ + 3 * kCanaryBytes;
    memory_ = c.on_heap(rank) ? new std::byte[bytes] : *AllocateShared(bytes);
    std::memset(memory_, static_cast<int>(kCanary), bytes);
    output_ = memory_ + kCanaryBytes;
    input_ = output_ + output_bytes_ + kCanaryBytes;
    if (c.place == Place::kIn) {
      const size_t mine = static_cast<size_t>(rank) * block;
      if (c.in_blocks()) {
        input_ = memory_ + kCanaryBytes;
        output_ = input_ + mine;
      } else {
        input_ = output_ + (c.out_blocks() ? mine : 0);
      }
    }
    for (size_t i = 0; i < input_bytes_ / sizeof(int32_t); ++i) {
      const int32_t value = Value(rank, static_cast<int64_t>(i));
      std::memcpy(input_ + i * sizeof(value), &value, sizeof(value));
    }
  }
  ~Buffers() {
    if (case_.on_heap(rank_)) {
      delete[] memory_;
    } else {
      EXPECT_TRUE(FreeShared(memory_).ok());
    }
  }

  std::byte* input() { return input_; }
  std::byte* output() { return output_; }

  std::string Check() const {
    for (size_t i = 0; i < output_bytes_ / sizeof(int32_t); ++i) {
      int32_t value;
      std::memcpy(&value, output_ + i * sizeof(value), sizeof(value));
      if (value != Expected(case_, rank_, static_cast<int64_t>(i))) {
        return absl::StrCat(case_.Name(), ": wrong at ", i, " of rank ", rank_);
      }
    }
    if (case_.place == Place::kIn && case_.in_blocks()) return "";
    for (size_t i = 0; i < kCanaryBytes; ++i) {
      if (output_[-1 - static_cast<ptrdiff_t>(i)] != kCanary ||
          output_[output_bytes_ + i] != kCanary) {
        return absl::StrCat(case_.Name(), ": a canary died on rank ", rank_);
      }
    }
    return "";
  }

 private:
  const Case case_;
  const int rank_;
  size_t input_bytes_;
  size_t output_bytes_;
  std::byte* memory_;
  std::byte* input_;
  std::byte* output_;
};

// One rank's part of a call: "" or what went wrong.
std::string RunCase(Engine& engine, const Case& c, int rank, Board& board) {
  Buffers buffers(c, rank);
  const SumOfInts fold;
  const bool to_root = c.collective == Collective::kReduce ||
                       c.collective == Collective::kGather;
  const bool from_root = c.collective == Collective::kBroadcast ||
                         c.collective == Collective::kScatter;
  const bool has_input = !from_root || rank == c.root;
  const bool has_output = !to_root || rank == c.root;
  const EngineCall call = {.collective = c.collective,
                           .element_bytes = sizeof(int32_t),
                           .count = c.count,
                           .root = c.root,
                           .input = has_input ? buffers.input() : nullptr,
                           .output = has_output ? buffers.output() : nullptr,
                           .fold = &fold,
                           .unmapped_pays = true};
  if (!engine.Accepts(call)) return "not accepted";
  board.offers[rank] = engine.MakeOffer(call);
  board.Barrier(c.ranks);
  auto run = engine.Start(call, {board.offers, static_cast<size_t>(c.ranks)});
  if (!run.ok()) return run.status().ToString();
  if (*run == nullptr) return "the offers didn't suffice";
  for (bool done = false; !done;) {
    auto advanced = (*run)->Advance();
    if (!advanced.ok()) return advanced.status().ToString();
    done = *advanced;
  }
  board.Barrier(c.ranks);
  std::string wrong = has_output ? buffers.Check() : "";
  board.Barrier(c.ranks);
  return wrong;
}

std::vector<Case> Cases(int ranks) {
  std::vector<Case> cases;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter,
        Collective::kAllGather, Collective::kBroadcast, Collective::kScatter,
        Collective::kGather, Collective::kAllToAll}) {
    for (const int64_t count : {1, 17, 1000, 70'001, 200'003}) {
      // Long enough for a reduce that isn't the root's alone.
      if (count > 100'000 && collective != Collective::kReduce) continue;
      for (const Place place : {Place::kOut, Place::kIn}) {
        if (collective == Collective::kAllToAll && place == Place::kIn) {
          continue;
        }
        for (const Memory memory :
             {Memory::kShared, Memory::kHeap, Memory::kMixed}) {
          cases.push_back({collective, count, place, ranks,
                           static_cast<int>(count) % ranks, memory});
        }
      }
    }
  }
  return cases;
}

TEST(ShmEngine, IsRightWithThreads) {
  for (const int ranks : {2, 3, kMaxRanks}) {
    auto board = std::make_unique<Board>();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        auto engine = board->EngineOf(rank, ranks);
        for (const Case& c : Cases(ranks)) {
          const std::string wrong = RunCase(*engine.engine, c, rank, *board);
          if (!wrong.empty()) board->failed = true;
          ASSERT_EQ(wrong, "");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(ShmEngine, IsRightWithProcesses) {
  for (const int ranks : {2, 3}) {
    auto* board =
        static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
      children.push_back(fork());
      if (children.back() != 0) continue;
      board->pids[rank] = getpid();
      board->Barrier(ranks);
      auto engine = board->EngineOf(rank, ranks);
      for (const Case& c : Cases(ranks)) {
        const std::string wrong = RunCase(*engine.engine, c, rank, *board);
        if (wrong.empty()) continue;
        std::cerr << wrong << "\n";
        board->failed = true;
        _exit(1);
      }
      _exit(0);
    }
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    munmap(board, sizeof(Board));
  }
}

TEST(ShmEngine, MakesNoOfferForMemoryThatPeersCannotReach) {
  auto engine = MakeShmEngine({.membership = {.rank = 0, .ranks = 2}});
  std::vector<std::byte> heap(4096);
  std::byte* shared = *AllocateShared(4096);
  EngineCall call = {.collective = Collective::kAllReduce,
                     .element_bytes = 4,
                     .count = 1024,
                     .input = heap.data(),
                     .output = shared};
  EXPECT_FALSE(engine->MakeOffer(call).made);
  call.input = shared;
  EXPECT_TRUE(engine->MakeOffer(call).made);
  call.count = 1025;
  EXPECT_FALSE(engine->MakeOffer(call).made);
  // An output of its own only may lie anywhere.
  call.collective = Collective::kAllGather;
  call.count = 1024;
  call.output = heap.data();
  EXPECT_TRUE(engine->MakeOffer(call).made);
  // In place, blocks would be overwritten before all have read them.
  call.collective = Collective::kAllToAll;
  call.count = 512;
  call.output = shared;
  EXPECT_FALSE(engine->MakeOffer(call).made);
  EXPECT_TRUE(FreeShared(shared).ok());
}

TEST(ShmEngine, LeavesItToMessagesUnlessAllRanksReachUnmappedMemory) {
  std::vector<std::byte> heap(4096);
  const EngineCall call = {.collective = Collective::kAllReduce,
                           .element_bytes = 4,
                           .count = 1024,
                           .input = heap.data(),
                           .output = heap.data(),
                           .unmapped_pays = true};
  std::byte* shared = *AllocateShared(4096);
  EngineCall mapped = call;
  mapped.input = mapped.output = shared;
  auto free = MakeShmEngine(
      {.membership = {.rank = 0, .ranks = 2}, .reaches_unmapped = true});
  auto bound = MakeShmEngine({.membership = {.rank = 1, .ranks = 2}});
  EXPECT_FALSE(bound->MakeOffer(call).made);
  const std::vector<Offer> offers = {free->MakeOffer(call),
                                     bound->MakeOffer(mapped)};
  ASSERT_TRUE(offers[0].made && offers[1].made);
  auto run = free->Start(call, offers);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(*run, nullptr);
  run = bound->Start(mapped, offers);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(*run, nullptr);
  // Nor where it wouldn't pay.
  EngineCall small = call;
  small.unmapped_pays = false;
  EXPECT_FALSE(free->MakeOffer(small).made);
  EXPECT_TRUE(FreeShared(shared).ok());
}

TEST(ShmEngine, AcceptsWhatAllRanksKnowAlike) {
  auto engine = MakeShmEngine({.membership = {.rank = 0, .ranks = 2}});
  EngineCall call = {.element_bytes = 4, .count = 1};
  EXPECT_TRUE(engine->Accepts(call));
  call.count = 0;
  EXPECT_FALSE(engine->Accepts(call));
  call.count = INT64_MAX;
  EXPECT_FALSE(engine->Accepts(call));
  call.count = 1;
  call.collective = Collective::kBarrier;
  EXPECT_FALSE(engine->Accepts(call));
  auto alone = MakeShmEngine({.membership = {.rank = 0, .ranks = 1}});
  EXPECT_FALSE(alone->Accepts({.element_bytes = 4, .count = 1}));
}

// A rank that gave up its call may have freed its buffers by now.
TEST(ShmEngine, TouchesNothingOfARankThatLeft) {
  Board board{};
  auto early = board.EngineOf(0, 2);
  auto late = board.EngineOf(1, 2);
  std::vector<int32_t> first(1024, 1);
  std::vector<int32_t> second(1024, 2);
  const SumOfInts fold;
  EngineCall call = {.collective = Collective::kAllReduce,
                     .element_bytes = 4,
                     .count = 1024,
                     .fold = &fold,
                     .unmapped_pays = true};
  const auto use = [&](std::vector<int32_t>& buffer) {
    call.output = reinterpret_cast<std::byte*>(buffer.data());
    call.input = call.output;
  };
  use(first);
  const Offer of_early = early->MakeOffer(call);
  ASSERT_TRUE(early->Leave().ok());
  use(second);
  const std::vector<Offer> offers = {of_early, late->MakeOffer(call)};
  auto run = late->Start(call, offers);
  ASSERT_TRUE(run.ok() && *run != nullptr);
  auto advanced = (*run)->Advance();
  ASSERT_FALSE(advanced.ok());
  EXPECT_NE(advanced.status().ToString().find("rank 0 has given up the call"),
            std::string::npos);
  EXPECT_EQ(first, std::vector<int32_t>(1024, 1));
}

TEST(ShmEngine, RefusesAnOfferThatCannotBe) {
  auto engine = MakeShmEngine({.membership = {.rank = 0, .ranks = 2}});
  std::byte* shared = *AllocateShared(4096);
  const EngineCall call = {.collective = Collective::kAllReduce,
                           .element_bytes = 4,
                           .count = 1024,
                           .input = shared,
                           .output = shared};
  const Offer good = engine->MakeOffer(call);
  ASSERT_TRUE(good.made);
  EXPECT_TRUE(engine->Start(call, std::vector<Offer>{good, good}).ok());
  for (const std::byte fill : {std::byte{0}, std::byte{0xff}}) {
    Offer bad = {.made = true};
    bad.bytes.fill(fill);
    auto run = engine->Start(call, std::vector<Offer>{good, bad});
    ASSERT_FALSE(run.ok());
    EXPECT_NE(run.status().ToString().find("rank 1"), std::string::npos);
  }
  EXPECT_TRUE(FreeShared(shared).ok());
}

// Not in this very process either, unless that's the peer's.
TEST(ShmEngine, RefusesAnOfferOfAnotherProcessesMemory) {
  std::vector<int32_t> mine(1024, 1);
  std::vector<int32_t> offered(1024, 2);
  const auto call = [](std::vector<int32_t>& buffer) {
    return EngineCall{.collective = Collective::kAllReduce,
                      .element_bytes = 4,
                      .count = 1024,
                      .input = reinterpret_cast<std::byte*>(buffer.data()),
                      .output = reinterpret_cast<std::byte*>(buffer.data()),
                      .unmapped_pays = true};
  };
  Board board{};
  board.pids[1] = getpid() + 1;
  auto engine = board.EngineOf(0, 2);
  const std::vector<Offer> offers = {engine->MakeOffer(call(mine)),
                                     engine->MakeOffer(call(offered))};
  ASSERT_TRUE(offers[0].made && offers[1].made);
  const auto run = engine->Start(call(mine), offers);
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.status().ToString().find("another process"), std::string::npos)
      << run.status();
}

}  // namespace
}  // namespace trnccl
