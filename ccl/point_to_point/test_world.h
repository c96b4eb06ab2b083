// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// For tests: the ranks of a communicator in one process, each with its own
// transport and PointToPoint, and data that tells where it came from.
//
// Thread rule: thread-compatible; different ranks from different threads.
//
//   TestWorld world({.ranks = 3});
//   world[0].Start(&send);
//   ASSERT_TRUE(world.RunUntil({&send, &receive}));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "ccl/point_to_point/point_to_point.h"
#include "ccl/route.h"
#include "transports/peer_memory.h"
#include "transports/transport.h"

namespace trnccl {

enum class Wire { kInproc, kShm };

class TestWorld {
 public:
  struct Options {
    int ranks = 2;
    Wire wire = Wire::kInproc;
    size_t slice_bytes = 1024;       // of inproc
    size_t arena_bytes = 256 << 10;  // of shm
    uint32_t first_id = 0;
    // Of shm: see PointToPoint::Options. Below, ranks read what peers offer.
    size_t unmapped_min_bytes = SIZE_MAX;
    uint32_t seed = 1;  // of the order in which ranks are stepped
  };
  explicit TestWorld(const Options& options);

  int ranks() const { return static_cast<int>(ranks_.size()); }
  PointToPoint& operator[](int rank) { return *At(rank).point_to_point; }
  Transport& transport(int rank) { return *At(rank).transport; }
  const Route& route(int rank, int peer) {
    return At(rank).routes[static_cast<size_t>(peer)];
  }

  // Progress and Advance of one rank; a failure of the test if either fails.
  void Step(int rank);
  // Every rank a number of times, in a seeded order.
  void StepAll();
  // Steps all until these are done; false if they aren't after long.
  bool RunUntil(const std::vector<const Transfer*>& transfers);

  static constexpr uint32_t kCookie = 0xc00c1e;

 private:
  struct Rank {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<PeerMemory> memory;  // of shm
    Routes routes;
    std::unique_ptr<PointToPoint> point_to_point;
  };
  Rank& At(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  std::vector<Rank> ranks_;
  std::mt19937 random_;
};

// A message by its source and tag (and number, where those repeat).
struct MessageName {
  int source = 0;
  int64_t tag = 0;
  int number = 0;
};

// A buffer with guards on both sides, aligned to nothing in particular.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes);

  std::byte* data() { return bytes_.data() + kGuardBytes; }
  size_t size() const { return bytes_.size() - 2 * kGuardBytes; }

  // What stands where depends on the name and the position.
  void Fill(const MessageName& name);
  // Whether it begins with `count` bytes of that message, and the rest of it
  // and the guards are untouched.
  bool Holds(const MessageName& name, size_t count);
  bool Untouched() { return Holds({}, 0); }

 private:
  static constexpr size_t kGuardBytes = 61;

  std::vector<std::byte> bytes_;
};

Transfer SendOf(GuardedBuffer& buffer, int peer, int64_t tag);
Transfer ReceiveInto(GuardedBuffer& buffer, int peer, int64_t tag);

}  // namespace trnccl
