// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/control.h"

namespace trnccl::shm {
namespace {

// Arenas begin at a page of any size in use.
constexpr size_t kPageBytes = 64 << 10;

constexpr size_t RoundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

size_t Control::CountersOffset(const Shape& shape) {
  return RoundUp(sizeof(Header) + shape.peers * sizeof(uint32_t), kLineBytes);
}

size_t Control::RingsOffset(const Shape& shape) {
  return RoundUp(CountersOffset(shape) + shape.links() * sizeof(Counter),
                 alignof(Descriptor));
}

size_t Control::QueueBytes(const Shape& shape) {
  return RoundUp(
      RingsOffset(shape) + shape.links() * kRingDepth * sizeof(Descriptor),
      kPageBytes);
}

size_t Control::Bytes(const Shape& shape) {
  return QueueBytes(shape) + shape.arena_bytes;
}

void Control::Initialise(const Header& start) {
  header().magic = start.magic;
  header().token = start.token;
  header().token_address = reinterpret_cast<uint64_t>(&header().token);
  header().rank = start.rank;
  header().first_sequence = start.first_sequence;
  header().sleep_barriers = start.sleep_barriers;
  for (size_t link = 0; link < shape_.links(); ++link) {
    consumed(link).store(start.first_sequence, std::memory_order_relaxed);
    // Each slot holds what the lap before would have left there, which no
    // receiver waits for.
    for (uint32_t k = 0; k < kRingDepth; ++k) {
      const uint32_t sequence = start.first_sequence + k;
      ring(link)[sequence % kRingDepth].head.store(sequence - kRingDepth,
                                                   std::memory_order_relaxed);
    }
  }
}

}  // namespace trnccl::shm
