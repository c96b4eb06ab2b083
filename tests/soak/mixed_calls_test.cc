// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Small calls of every kind, back to back, as many as are asked for, on
// communicators that are new or have made billions of calls: each result is
// right, all ranks agree on how many there were, and nothing grows.
//
//   mixed_calls_test --calls=1000000 --seed=7 --gtest_filter='*shm*'
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ccl/base/settings.h"
#include "ccl/bootstrap/unique_id.h"
#include "ccl/capi/handles.h"
#include "ccl/communicator/create.h"
#include "ccl/progress/process_mark.h"
#include "ccl/trnccl.h"
#include "gtest/gtest.h"
#include "tests/collectives/guarded_buffer.h"
#include "tests/collectives/ranks.h"
#include "tests/soak/mixed_call.h"

namespace trnccl {
namespace {

// In one submission, or under way at once.
constexpr size_t kTogether = 3;

// What a growing heap's own rounding may come to, between a tenth of the calls
// and all of them.
constexpr long kRoundingKb = 3072;

size_t calls = 20'000;
uint64_t seed = 0;

trncclComm_t HandleOf(std::unique_ptr<Communicator> made) {
  auto* handle = new trncclComm;
  handle->process_mark = ProcessMark();
  handle->owned = std::move(made);
  handle->communicator.store(handle->owned.get());
  handle->init_result.store(trncclSuccess);
  return handle;
}

struct Resources {
  long resident_kb = 0;
  long descriptors = 0;
  long threads = 0;

  static Resources OfProcess() {
    const auto count = [](const char* folder) {
      return static_cast<long>(
          std::distance(std::filesystem::directory_iterator(folder), {}));
    };
    Resources now{.descriptors = count("/proc/self/fd"),
                  .threads = count("/proc/self/task")};
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> now.resident_kb;
    now.resident_kb *= sysconf(_SC_PAGESIZE) / 1024;
    return now;
  }
};

// A call under way, and the memory that it uses.
struct Slot {
  explicit Slot(GuardedBuffer::Memory memory)
      : input(kMostCallBytes, 3, memory), output(kMostCallBytes, 0, memory) {}

  GuardedBuffer input;
  GuardedBuffer output;
  MixedCall call;
  RankShare share;
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  trncclStatus_t status = {};
  std::array<trncclRequest_t, 2> requests = {};
};

// The counts of all-to-all-v of one rank.
struct PairCounts {
  std::vector<size_t> sent;
  std::vector<size_t> received;
};

PairCounts PairCountsOf(const MixedCall& call, const Membership& me) {
  PairCounts counts;
  const auto rank = static_cast<size_t>(me.rank);
  const auto ranks = static_cast<size_t>(me.ranks);
  for (size_t peer = 0; peer < ranks; ++peer) {
    counts.sent.push_back(call.counts[rank * ranks + peer]);
    counts.received.push_back(call.counts[peer * ranks + rank]);
  }
  return counts;
}

class MixedRank {
 public:
  struct Options {
    Membership me;
    GuardedBuffer::Memory memory = GuardedBuffer::Memory::kHeap;
    uint64_t seed = 0;
  };
  MixedRank(trncclComm_t comm, const Options& options)
      : comm_(comm),
        me_(options.me),
        draw_(options.seed),
        data_(options.me.ranks) {
    for (size_t i = 0; i < kTogether; ++i)
      slots_.push_back(std::make_unique<Slot>(options.memory));
  }

  // Until that many have been made in all.
  void MakeCalls(size_t until) {
    while (made_ < until && !testing::Test::HasFailure()) {
      MaybeSleep();
      MakeSome();
    }
  }
  // Calls of all ranks, by what they say themselves; and what they'd draw next.
  void CheckThatAllAgree();

  void Barrier() {
    ++collectives_;
    EXPECT_CALL_OK(trncclBarrier(comm_, nullptr));
  }
  // Each rank waits so long for one that it sleeps, for which it keeps a
  // descriptor from the first time on.
  void MakeAllSleep() {
    for (int rank = 0; rank < me_.ranks; ++rank) {
      if (rank == me_.rank) usleep(20'000);
      Barrier();
    }
  }

  size_t made() const { return made_; }
  size_t offers() const { return offers_; }

 private:
  enum class Way : uint8_t { kBlocking, kAsynchronous, kGroup };

  void MaybeSleep();
  void MakeSome();
  void Prepare(Slot* slot);
  void Issue(Slot* slot, Way way);
  trncclResult_t IssueCollective(const Slot& slot, trncclRequest_t* request);
  trncclResult_t IssueUneven(const Slot& slot, trncclRequest_t* request);
  void IssueMessages(Slot* slot, Way way);
  void Wait(Slot* slot);
  void Check(Slot* slot);

  trncclComm_t comm_;
  const Membership me_;
  MixedDraw draw_;
  CallData data_;
  std::vector<std::unique_ptr<Slot>> slots_;
  size_t made_ = 0;
  size_t collectives_ = 0;
  size_t offers_ = 0;  // messages too long to be sent at once
};

void MixedRank::MaybeSleep() {
  const bool sleeps = draw_.Below(3000) == 0;
  const bool is_me =
      static_cast<int>(draw_.Below(static_cast<size_t>(me_.ranks))) == me_.rank;
  const auto us = static_cast<useconds_t>(draw_.Below(500));
  if (sleeps && is_me) usleep(us);
}

void MixedRank::MakeSome() {
  const size_t kind = draw_.Below(100);
  const Way way = kind < 70   ? Way::kBlocking
                  : kind < 85 ? Way::kAsynchronous
                              : Way::kGroup;
  const size_t together =
      way == Way::kBlocking ? 1 : 1 + draw_.Below(kTogether);
  const std::span slots(slots_.data(), together);
  for (const auto& slot : slots) {
    slot->call = DrawCall(me_.ranks, &draw_);
    slot->call.number = made_++;
    Prepare(slot.get());
  }
  if (way == Way::kGroup) {
    ASSERT_CALL_OK(trncclGroupStart());
  }
  for (const auto& slot : slots) Issue(slot.get(), way);
  if (way == Way::kGroup) {
    ASSERT_CALL_OK(trncclGroupEnd());
  }
  if (way == Way::kAsynchronous)
    for (const auto& slot : slots) Wait(slot.get());
  for (const auto& slot : slots) Check(slot.get());
}

void MixedRank::Prepare(Slot* slot) {
  const MixedCall& call = slot->call;
  slot->share = ShareOf(call, me_);
  const RankShare& share = slot->share;
  const size_t bytes = ElementBytes(call.type);
  const size_t output_bytes = share.output_count() * bytes;
  slot->requests = {};
  if (call.in_place) {
    std::byte* input = slot->output.data() + share.input_at * bytes;
    slot->receive = slot->output.data() + share.output_at * bytes;
    slot->send = input;
    std::fill_n(slot->receive, output_bytes + 1, kCanary);
    if (share.input_count > 0)
      data_.FillInput(call, me_.rank, input, share.input_count);
    return;
  }
  slot->send = slot->input.data();
  slot->receive = slot->output.data();
  data_.FillInput(call, me_.rank, slot->input.data(), share.input_count);
  std::fill_n(slot->receive, output_bytes + 1, kCanary);
}

void MixedRank::Issue(Slot* slot, Way way) {
  if (slot->call.kind == MixedCall::kMessages) return IssueMessages(slot, way);
  ++collectives_;
  trncclRequest_t* request =
      way == Way::kAsynchronous ? &slot->requests[0] : nullptr;
  ASSERT_CALL_OK(IssueCollective(*slot, request))
      << "call " << slot->call.number;
}

trncclResult_t MixedRank::IssueCollective(const Slot& slot,
                                          trncclRequest_t* request) {
  const MixedCall& call = slot.call;
  const auto type = static_cast<trncclDataType_t>(call.type);
  const auto op = static_cast<trncclRedOp_t>(call.op);
  const void* send = slot.send;
  void* receive = slot.receive;
  switch (call.collective) {
    case Collective::kAllReduce:
      return trncclAllReduce(send, receive, call.count, type, op, comm_,
                             request);
    case Collective::kBroadcast:
      return trncclBroadcast(send, receive, call.count, type, call.root, comm_,
                             request);
    case Collective::kReduce:
      return trncclReduce(send, receive, call.count, type, op, call.root, comm_,
                          request);
    case Collective::kAllGather:
      return trncclAllGather(send, receive, call.count, type, comm_, request);
    case Collective::kReduceScatter:
      return trncclReduceScatter(send, receive, call.count, type, op, comm_,
                                 request);
    case Collective::kAllToAll:
      return trncclAllToAll(send, receive, call.count, type, comm_, request);
    case Collective::kGather:
      return trncclGather(send, receive, call.count, type, call.root, comm_,
                          request);
    case Collective::kScatter:
      return trncclScatter(send, receive, call.count, type, call.root, comm_,
                           request);
    case Collective::kBarrier:
      return trncclBarrier(comm_, request);
    default:
      return IssueUneven(slot, request);
  }
}

trncclResult_t MixedRank::IssueUneven(const Slot& slot,
                                      trncclRequest_t* request) {
  const MixedCall& call = slot.call;
  const auto type = static_cast<trncclDataType_t>(call.type);
  if (call.collective == Collective::kAllGatherV) {
    return trncclAllGatherV(slot.send, slot.receive, call.counts.data(),
                            nullptr, type, comm_, request);
  }
  if (call.collective == Collective::kReduceScatterV) {
    return trncclReduceScatterV(slot.send, slot.receive, call.counts.data(),
                                type, static_cast<trncclRedOp_t>(call.op),
                                comm_, request);
  }
  const PairCounts counts = PairCountsOf(call, me_);
  return trncclAllToAllV(slot.send, counts.sent.data(), nullptr, slot.receive,
                         counts.received.data(), nullptr, type, comm_, request);
}

void MixedRank::IssueMessages(Slot* slot, Way way) {
  constexpr size_t kEagerBytes = 8192;
  const MixedCall& call = slot->call;
  const int to = (me_.rank + call.shift) % me_.ranks;
  const int from = call.any_source
                       ? TRNCCL_ANY_SOURCE
                       : (me_.rank + me_.ranks - call.shift) % me_.ranks;
  if (call.shift != 0 && call.count > kEagerBytes) ++offers_;
  const auto tag = static_cast<int64_t>(call.number % INT32_MAX);
  const bool waits = way == Way::kAsynchronous;
  if (!waits) {
    ASSERT_CALL_OK(trncclGroupStart());
  }
  ASSERT_CALL_OK(trncclSend(slot->send, call.count, trncclUint8, to, tag, comm_,
                            waits ? &slot->requests[0] : nullptr));
  ASSERT_CALL_OK(trncclRecv(slot->receive, call.count, trncclUint8, from, tag,
                            &slot->status, comm_,
                            waits ? &slot->requests[1] : nullptr));
  if (!waits) {
    ASSERT_CALL_OK(trncclGroupEnd());
  }
}

void MixedRank::Wait(Slot* slot) {
  for (trncclRequest_t& request : slot->requests) {
    if (request == nullptr) continue;
    EXPECT_CALL_OK(trncclRequestWait(request, TRNCCL_WAIT_FOREVER))
        << "call " << slot->call.number;
    EXPECT_CALL_OK(trncclRequestFree(request));
  }
}

void MixedRank::Check(Slot* slot) {
  const MixedCall& call = slot->call;
  const size_t bytes = slot->share.output_count() * ElementBytes(call.type);
  EXPECT_TRUE(data_.IsRight(call, slot->share, slot->receive))
      << "call " << call.number << " of rank " << me_.rank << ": "
      << (call.kind == MixedCall::kMessages ? "a message"
                                            : Name(call.collective))
      << " of " << call.count << " " << Name(call.type) << ", " << Name(call.op)
      << ", root " << call.root;
  if (!call.in_place) {
    EXPECT_EQ(slot->receive[bytes], kCanary) << "call " << call.number;
  }
  if (call.kind != MixedCall::kMessages) return;
  EXPECT_EQ(slot->status.source, slot->share.output[0].source);
  EXPECT_EQ(slot->status.count, call.count);
}

void MixedRank::CheckThatAllAgree() {
  const std::array<uint64_t, 3> mine = {made_, collectives_,
                                        draw_.Below(INT64_MAX)};
  std::vector<std::array<uint64_t, 3>> all(static_cast<size_t>(me_.ranks));
  ASSERT_CALL_OK(trncclAllGather(mine.data(), all.data(), mine.size(),
                                 trncclUint64, comm_, nullptr));
  ++collectives_;
  for (const auto& theirs : all) EXPECT_EQ(theirs, mine);
  char* text = nullptr;
  ASSERT_CALL_OK(trncclCommDumpCalls(comm_, &text));
  const std::string said =
      absl::StrCat("\"last_completed_collective\":", collectives_);
  EXPECT_NE(std::string(text).find(said), std::string::npos) << said;
  trncclFreeText(text);
}

struct Soak {
  std::string transport;
  int ranks = 2;
  uint32_t wraps_at = 0;  // the number that counters come to; 0: new ones
  GuardedBuffer::Memory memory = GuardedBuffer::Memory::kHeap;
};

void PrintTo(const Soak& soak, std::ostream* out) {
  *out << soak.ranks << " ranks over " << soak.transport;
  if (soak.wraps_at != 0) *out << ", counters near " << soak.wraps_at;
}

absl::StatusOr<std::unique_ptr<Communicator>> Make(const Soak& soak,
                                                   const UniqueId& id,
                                                   int rank) {
  MakeRequest request{.id = id,
                      .membership = {.rank = rank, .ranks = soak.ranks},
                      .name = "soak"};
  request.settings.transport = {soak.transport};
  request.settings.timeout_ms = 60'000;
  request.settings.fabric_provider = soak.transport == "fabric" ? "net" : "";
  if (soak.wraps_at != 0)
    request.first_sequence =
        soak.wraps_at - static_cast<uint32_t>(calls) / 200 - 1;
  return MakeCommunicator(request);
}

class MixedCalls : public testing::TestWithParam<Soak> {};

void CheckGrowth(const Resources& early, const Resources& late) {
  EXPECT_EQ(late.descriptors, early.descriptors);
  EXPECT_EQ(late.threads, early.threads);
  // A sanitizer keeps freed memory.
  if (std::getenv("EXPECT_SANITIZER") != nullptr) return;
  EXPECT_LE(late.resident_kb, early.resident_kb + kRoundingKb);
}

TEST_P(MixedCalls, AreAllRightAndLeaveNothingBehind) {
  const Soak& soak = GetParam();
  SCOPED_TRACE(absl::StrCat("--seed=", seed));
  const auto since = std::chrono::steady_clock::now();
  const absl::StatusOr<UniqueId> id = CreateUniqueId({.names = "lo"});
  ASSERT_TRUE(id.ok()) << id.status();
  Resources early;
  Resources late;
  size_t made = 0;
  const auto run = [&](int rank) {
    auto communicator = Make(soak, *id, rank);
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    trncclComm_t comm = HandleOf(*std::move(communicator));
    MixedRank mixed(comm, {.me = {.rank = rank, .ranks = soak.ranks},
                           .memory = soak.memory,
                           .seed = seed});
    mixed.MakeCalls(calls / 10);
    mixed.MakeAllSleep();
    if (rank == 0) early = Resources::OfProcess();
    mixed.MakeCalls(calls);
    mixed.Barrier();
    if (rank == 0) late = Resources::OfProcess();
    mixed.CheckThatAllAgree();
    if (rank == 0) made = mixed.made();
    EXPECT_GT(mixed.offers(), calls / 200) << "they don't come to the wrap";
    EXPECT_CALL_OK(trncclCommDestroy(comm));
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < soak.ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  CheckGrowth(early, late);
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - since;
  std::cout << testing::PrintToString(soak) << ": " << made << " calls in "
            << took.count() << " s, seed " << seed << "; resident "
            << early.resident_kb << " -> " << late.resident_kb
            << " KiB, descriptors " << early.descriptors << " -> "
            << late.descriptors << ", threads " << early.threads << " -> "
            << late.threads << "\n";
}

std::vector<Soak> AllSoaks() {
  constexpr auto kShared = GuardedBuffer::Memory::kShared;
  constexpr uint32_t kHalf = uint32_t{1} << 31;
  // What overflows to 0 comes after this.
  constexpr uint32_t kLast = UINT32_MAX;
  return {
      {.transport = "inproc", .ranks = 3},
      {.transport = "inproc", .ranks = 2, .wraps_at = kHalf},
      {.transport = "inproc", .ranks = 4, .wraps_at = kLast},
      {.transport = "shm", .ranks = 2, .memory = kShared},
      {.transport = "shm", .ranks = 3, .wraps_at = kHalf},
      {.transport = "shm", .ranks = 4, .wraps_at = kLast, .memory = kShared},
      {.transport = "shm", .ranks = 2, .wraps_at = kLast},
      {.transport = "fabric", .ranks = 2},
      {.transport = "fabric", .ranks = 3, .wraps_at = kHalf},
      {.transport = "fabric", .ranks = 2, .wraps_at = kLast}};
}

INSTANTIATE_TEST_SUITE_P(
    , MixedCalls, testing::ValuesIn(AllSoaks()), [](const auto& one) {
      const Soak& soak = one.param;
      return absl::StrCat(
          soak.transport, "_", soak.ranks, "_ranks",
          soak.wraps_at == 0 ? "" : absl::StrCat("_near_", soak.wraps_at),
          soak.memory == GuardedBuffer::Memory::kShared ? "_shared" : "");
    });

template <typename Number>
bool TakeFlag(std::string_view argument, std::string_view name, Number* value) {
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  return absl::SimpleAtoi(absl::string_view(argument.data(), argument.size()),
                          value);
}

}  // namespace
}  // namespace trnccl

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  trnccl::seed = std::random_device()();
  for (int i = 1; i < argc; ++i) {
    if (trnccl::TakeFlag(argv[i], "--calls=", &trnccl::calls) ||
        trnccl::TakeFlag(argv[i], "--seed=", &trnccl::seed))
      continue;
    std::cerr << "unknown: " << argv[i] << "\n";
    return 2;
  }
  return RUN_ALL_TESTS();
}
