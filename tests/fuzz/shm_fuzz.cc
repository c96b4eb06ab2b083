// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Shared memory as a hostile peer writes it: every word of its queues, and the
// texts of addresses. Whatever a rank peeks can be read to its end.
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>

#include "ccl/base/check.h"
#include "tests/fuzz/input.h"
#include "transports/shm/address.h"
#include "transports/shm/control.h"
#include "transports/shm/shm_transport.h"

namespace trnccl::shm {
namespace {

constexpr int kLanes = 2;

// Two ranks of one process, made anew for each run: errors stay.
class Pair {
 public:
  Pair() {
    for (auto& rank : ranks_)
      rank = *ShmTransport::Create({.arena_bytes = 64 << 10});
    const auto connect = [this](int rank) {
      const int peer = 1 - rank;
      TRNCCL_CHECK(
          ranks_[rank]
              ->Connect({.peers = {{peer, ranks_[peer]->traits().address}},
                         .rank = rank,
                         .lanes = kLanes,
                         .deadline = Deadline::After(60'000)})
              .ok());
    };
    std::thread other(connect, 1);
    connect(0);
    other.join();
  }

  ShmTransport& victim() { return *ranks_[0]; }
  const Control& hostile() { return ranks_[1]->control(); }

 private:
  std::unique_ptr<ShmTransport> ranks_[2];
};

// A place in this process's own reach, or nonsense.
SharedPiece TakePiece(fuzz::Input& input) {
  SharedPiece piece;
  const uint8_t form = input.Take<uint8_t>();
  piece.memory.pid = form % 2 == 0 ? getpid() : -1;
  piece.memory.fd = input.Take<int8_t>();
  piece.memory.inode = input.Take<uint64_t>();
  piece.memory.bytes = input.Take<uint64_t>();
  piece.offset = input.Take<uint64_t>();
  return piece;
}

void WriteDescriptor(fuzz::Input& input, Descriptor* ring, uint32_t next) {
  const uint8_t form = input.Take<uint8_t>();
  const uint32_t sequence = form % 8 == 0 ? input.Take<uint32_t>() : next;
  Descriptor& descriptor = ring[next % kRingDepth];
  if (form / 8 % 2 == 0) {
    const SharedPiece piece = TakePiece(input);
    std::memcpy(descriptor.payload.data(), &piece, sizeof(piece));
  } else {
    const auto offset = input.Take<uint64_t>();
    std::memcpy(descriptor.payload.data(), &offset, sizeof(offset));
  }
  descriptor.head.store(uint64_t{input.Take<uint32_t>()} << 32 | sequence);
}

// All bytes, so that a sanitizer or the hardware sees one that isn't there.
void Read(const Incoming& message) {
  TRNCCL_CHECK(message.bytes <= 64 << 10);
  unsigned sum = 0;
  for (size_t i = 0; i < message.bytes; ++i)
    sum += std::to_integer<unsigned>(message.data[i]);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  static_cast<void>(sum);
}

void Play(fuzz::Input& input) {
  Pair pair;
  ShmTransport& victim = pair.victim();
  uint32_t next[kLanes] = {};
  while (!input.empty()) {
    const uint8_t what = input.Take<uint8_t>();
    const int lane = what % kLanes;
    const LinkId link = victim.Link(0, lane);
    switch (what / kLanes % 4) {
      case 0:
        pair.hostile().consumed(link.index).store(input.Take<uint32_t>());
        break;
      case 1: {
        std::byte* slice = victim.Reserve({&link, 1}, what);
        if (slice != nullptr) {
          std::memset(slice, 0, what);
          victim.Send({&link, 1}, {.bytes = what});
        }
        break;
      }
      default:
        WriteDescriptor(input, pair.hostile().ring(link.index), next[lane]);
    }
    if (const Incoming* message = victim.Peek(link, nullptr)) {
      Read(*message);
      victim.Release(link);
      ++next[lane];
    }
    static_cast<void>(victim.Pending(link));
    if (!victim.Progress().ok()) return;
  }
}

}  // namespace
}  // namespace trnccl::shm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  fuzz::Input input(data, size);
  if (input.Take<uint8_t>() % 8 != 0) {
    shm::Play(input);
    return 0;
  }
  const std::string text(input.Rest());
  const auto address = shm::Address::Parse(text);
  if (address.ok()) TRNCCL_CHECK(shm::Address::Parse(address->Text()).ok());
  return 0;
}
