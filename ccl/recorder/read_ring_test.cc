// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The reader from outside, beside the recorder that it reads, and beside bytes
// that no recorder wrote.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ccl/recorder/call_log.h"
#include "ccl/recorder/recorder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

constexpr CallKind kAllReduce = KindOf(Collective::kAllReduce);
constexpr uint32_t kCalls = 16;
constexpr size_t kBytes = sizeof(CallRingHeader) + kCalls * sizeof(CallSlot);

Recorder::Options Keeping16() {
  return {.owner = {.membership = {.rank = 1, .ranks = 3},
                    .name = "world",
                    .hostname = "here",
                    .cookie = 7},
          .calls = kCalls};
}

// Where /proc says that this process's ring is.
RingPlace OwnRing() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(kRingName) == line.npos) continue;
    const uint64_t begin = std::stoull(line, nullptr, 16);
    const uint64_t end =
        std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    return {begin, end - begin};
  }
  return {};
}

absl::Status ReadOwn(uint64_t address, std::span<std::byte> into) {
  std::memcpy(into.data(), reinterpret_cast<const void*>(address), into.size());
  return absl::OkStatus();
}

// The ring's bytes as a test has changed them.
absl::StatusOr<CallLog> ReadBytes(const std::vector<std::byte>& bytes) {
  return ReadCallRing({.bytes = bytes.size()}, [&](uint64_t address,
                                                   std::span<std::byte> into) {
    if (address > bytes.size() || into.size() > bytes.size() - address)
      return absl::OutOfRangeError("no such memory");
    std::memcpy(into.data(), bytes.data() + address, into.size());
    return absl::OkStatus();
  });
}

std::vector<std::byte> BytesOf(const RingPlace& ring) {
  std::vector<std::byte> bytes(kBytes);
  std::memcpy(bytes.data(), reinterpret_cast<const void*>(ring.address),
              kBytes);
  return bytes;
}

template <typename Field>
void Set(std::vector<std::byte>* bytes, size_t offset, Field value) {
  std::memcpy(bytes->data() + offset, &value, sizeof(value));
}

TEST(RingFromOutside, SaysWhatTheRecorderWrote) {
  Recorder recorder(Keeping16());
  const uint64_t first = recorder.Schedule({.kind = kAllReduce,
                                            .type = DataType::kFloat32,
                                            .op = ReduceOp::kMax,
                                            .count = 17});
  recorder.Start(first, "ring");
  recorder.Complete(first);
  recorder.Schedule({.kind = CallKind::kSend, .peer = 2, .tag = 9});
  const absl::StatusOr<CallLog> log = ReadCallRing(OwnRing(), ReadOwn);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->owner.name, "world");
  EXPECT_EQ(log->owner.hostname, "here");
  EXPECT_EQ(log->owner.cookie, 7u);
  EXPECT_EQ(log->owner.membership.rank, 1);
  EXPECT_EQ(log->owner.membership.ranks, 3);
  EXPECT_EQ(log->owner.pid, getpid());
  EXPECT_EQ(log->last_completed, 1u);
  ASSERT_EQ(log->calls.size(), 2u);
  EXPECT_EQ(log->calls[0].algorithm, "ring");
  EXPECT_EQ(log->calls[0].state, CallState::kCompleted);
  EXPECT_EQ(log->calls[0].count, 17u);
  EXPECT_LE(log->calls[0].created_ns, log->calls[0].finished_ns);
  EXPECT_LE(log->calls[0].finished_ns, log->read_ns);
  EXPECT_EQ(log->calls[1].kind, CallKind::kSend);
  EXPECT_EQ(log->calls[1].tag, 9);
  // But for the moment, it's the recorder's own dump.
  const std::string outside = CallLogJson(*log), inside = recorder.Dump();
  EXPECT_EQ(std::count(outside.begin(), outside.end(), ','),
            std::count(inside.begin(), inside.end(), ','));
}

TEST(RingFromOutside, ShowsTheFailure) {
  Recorder recorder(Keeping16());
  recorder.FailAll(absl::AbortedError("rank 2 \x1b[31mis gone"));
  const absl::StatusOr<CallLog> log = ReadCallRing(OwnRing(), ReadOwn);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->cause, "rank 2 ?[31mis gone");
}

TEST(RingFromOutside, IsGoneWithTheRecorder) {
  { Recorder recorder(Keeping16()); }
  EXPECT_EQ(OwnRing().bytes, 0u);
}

TEST(RingFromOutside, RefusesWhatIsNoRing) {
  Recorder recorder(Keeping16());
  const std::vector<std::byte> good = BytesOf(OwnRing());
  ASSERT_TRUE(ReadBytes(good).ok());
  const auto refuses = [&](size_t offset, auto value) {
    std::vector<std::byte> bad = good;
    Set(&bad, offset, value);
    EXPECT_EQ(ReadBytes(bad).status().code(),
              absl::StatusCode::kInvalidArgument)
        << offset;
  };
  using Header = CallRingHeader;
  refuses(offsetof(Header, magic), uint64_t{0});
  refuses(offsetof(Header, version), kRingVersion + 1);
  refuses(offsetof(Header, header_bytes), uint32_t{64});
  refuses(offsetof(Header, slot_bytes), uint32_t{0});
  for (const uint32_t slots : {0u, 15u, 32u, 1u << 31})
    refuses(offsetof(Header, slots), slots);
  refuses(offsetof(Header, rank), int32_t{3});
  refuses(offsetof(Header, rank), int32_t{-1});
  refuses(offsetof(Header, ranks), int32_t{0});
  refuses(offsetof(Header, ranks), INT32_MAX);
  refuses(offsetof(Header, created_ns), INT64_MAX);
  refuses(offsetof(Header, created_ns), INT64_MIN);
  const std::vector<std::byte> torn(good.begin(), good.end() - 1);
  EXPECT_FALSE(ReadBytes(torn).ok());
  EXPECT_FALSE(ReadBytes({}).ok());
}

TEST(RingFromOutside, LeavesOutCallsThatNoRecorderWrote) {
  Recorder recorder(Keeping16());
  for (int i = 0; i < 3; ++i) recorder.Begin({.kind = kAllReduce});
  const std::vector<std::byte> good = BytesOf(OwnRing());
  const size_t second = sizeof(CallRingHeader) + sizeof(CallSlot);
  const auto leaves_out = [&](size_t offset, auto value) {
    std::vector<std::byte> bad = good;
    Set(&bad, second + offset, value);
    const absl::StatusOr<CallLog> log = ReadBytes(bad);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_EQ(log->calls.size(), 2u) << offset;
    EXPECT_EQ(log->calls[1].call, 2u);
  };
  leaves_out(offsetof(CallSlot, stamp), uint64_t{3});   // being written
  leaves_out(offsetof(CallSlot, stamp), uint64_t{42});  // another slot's
  leaves_out(offsetof(CallSlot, kind), uint8_t{99});
  leaves_out(offsetof(CallSlot, type), uint8_t{17});
  leaves_out(offsetof(CallSlot, op), uint8_t{9});
  leaves_out(offsetof(CallSlot, state), uint8_t{4});
  leaves_out(offsetof(CallSlot, algorithm), kMostAlgorithms);
}

TEST(RingFromOutside, SurvivesRandomBytes) {
  Recorder recorder(Keeping16());
  for (uint64_t i = 0; i < 40; ++i)
    recorder.Begin({.kind = kAllReduce, .count = i});
  const std::vector<std::byte> good = BytesOf(OwnRing());
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::byte> bad = good;
    const int changes = 1 + static_cast<int>(random() % 64);
    for (int i = 0; i < changes; ++i)
      bad[random() % bad.size()] = static_cast<std::byte>(random());
    const absl::StatusOr<CallLog> log = ReadBytes(bad);
    if (!log.ok()) continue;
    EXPECT_LE(log->calls.size(), size_t{kCalls});
    EXPECT_LT(CallLogJson(*log).size(), size_t{16} << 20);
  }
}

TEST(RingFromOutside, HoldsWholeCallsWhileTheyAreRecorded) {
  Recorder recorder(Keeping16());
  const RingPlace ring = OwnRing();
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t i = 0; !stop; ++i) {
      const uint64_t call = recorder.Schedule(
          {.kind = kAllReduce, .count = i, .peer = static_cast<int>(i)});
      recorder.Start(call, "ring");
      recorder.Complete(call);
    }
  });
  // The kernel copies, as between processes.
  const auto read = [](uint64_t address, std::span<std::byte> into) {
    const iovec local{into.data(), into.size()};
    const iovec remote{reinterpret_cast<void*>(address), into.size()};
    EXPECT_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0),
              static_cast<ssize_t>(into.size()));
    return absl::OkStatus();
  };
  size_t seen = 0;
  for (int round = 0; round < 100 || seen < 100; ++round) {
    const absl::StatusOr<CallLog> log = ReadCallRing(ring, read);
    ASSERT_TRUE(log.ok()) << log.status();
    for (const LoggedCall& call : log->calls) {
      EXPECT_EQ(call.count, call.call);
      EXPECT_EQ(call.peer, static_cast<int>(call.call));
      ++seen;
    }
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace trnccl
