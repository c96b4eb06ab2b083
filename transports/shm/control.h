// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What lies where in a rank's shared memory, and its queues' words. One rank
// writes a memory, and its peers read it:
//
//   header | acks, a word a peer | consumed, a line a link | rings | arena
//
// A link from rank a to rank b is a ring of descriptors in a's memory and a
// counter of consumed messages in b's. Message k stands in slot k % kRingDepth;
// there it is once the slot's sequence is k. Its slot may be written again once
// the counter is above k. Numbers wrap at 2^32.
//
// Thread rule: plain layout; the atomics say what may be seen when.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transports/transport.h"

namespace trnccl::shm {

inline constexpr size_t kLineBytes = 64;
inline constexpr uint32_t kRingDepth = 8;  // a power of two
inline constexpr size_t kInlineBytes = 96;

enum class MessageKind : uint32_t { kInline = 0, kArena = 1, kReference = 2 };

// The word beside the sequence: what the message is, and its length.
struct MessageWord {
  MessageKind kind = MessageKind::kInline;
  uint32_t bytes = 0;

  static constexpr uint32_t kBytesBits = 28;

  uint32_t Pack() const {
    return static_cast<uint32_t>(kind) << kBytesBits | bytes;
  }
  static MessageWord Unpack(uint32_t word) {
    return {.kind = static_cast<MessageKind>(word >> kBytesBits),
            .bytes = word & ((1u << kBytesBits) - 1)};
  }
};

// Two lines; a message of up to 32 bytes touches the first only. The payload is
// the message, an offset into the sender's arena, or a SharedPiece.
struct alignas(2 * kLineBytes) Descriptor {
  std::atomic<uint64_t> head;  // low half: sequence; high half: MessageWord
  Envelope envelope;
  std::array<std::byte, kInlineBytes> payload;
};
static_assert(sizeof(Descriptor) == 2 * kLineBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct alignas(kLineBytes) Counter {
  std::atomic<uint32_t> value;
};

struct Header {
  // Set up before `ready`, constant after.
  uint64_t magic;
  uint64_t token;
  uint64_t token_address;  // in its own process
  int32_t rank;
  uint32_t first_sequence;
  uint32_t sleep_barriers;  // 1: peers that have joined them need no fences
  std::atomic<uint32_t> ready;

  alignas(kLineBytes) std::atomic<uint32_t> asleep;
  std::atomic<uint32_t> closed;
  std::atomic<uint32_t> left;  // of gate.h, as is:

  alignas(kLineBytes) std::atomic<uint32_t> inside;
};

// Changes with every change of this file.
inline constexpr uint64_t kMagic = 0x74726e63636c0002;

struct Shape {
  size_t peers = 0;
  size_t lanes = 0;
  size_t arena_bytes = 0;

  size_t links() const { return peers * lanes; }
};

// A rank's memory, seen through its shape. For a peer's the caller must only
// read.
class Control {
 public:
  Control() = default;
  Control(std::byte* base, const Shape& shape) : base_(base), shape_(shape) {}

  // All of it, and the part before the arena.
  static size_t Bytes(const Shape& shape);
  static size_t QueueBytes(const Shape& shape);

  // Writes the start state of all but the arena; `ready` isn't set yet.
  void Initialise(const Header& start);

  Header& header() const { return *At<Header>(0); }
  std::atomic<uint32_t>& ack(size_t peer) const {
    return At<std::atomic<uint32_t>>(sizeof(Header))[peer];
  }
  std::atomic<uint32_t>& consumed(size_t link) const {
    return At<Counter>(CountersOffset(shape_))[link].value;
  }
  Descriptor* ring(size_t link) const {
    return At<Descriptor>(RingsOffset(shape_)) + link * kRingDepth;
  }
  std::byte* arena() const { return base_ + QueueBytes(shape_); }
  const Shape& shape() const { return shape_; }

 private:
  static size_t CountersOffset(const Shape& shape);
  static size_t RingsOffset(const Shape& shape);

  template <typename T>
  T* At(size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  std::byte* base_ = nullptr;
  Shape shape_;
};

}  // namespace trnccl::shm
