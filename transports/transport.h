// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The one interface between the executor and whatever carries bytes: shared
// memory, libfabric, an in-process hub, a simulator. It knows messages, links
// and regions; it doesn't know collectives, chunks or operators.
//
// One Transport object is one communicator's endpoint on one kind of wire. It
// has a pair of links, one each way, for every (peer, lane). A link is a FIFO
// of messages of at most traits().slice_bytes.
//
// The contract, proved by transports/conformance:
//  1. A link that's empty always takes one message, whatever the other links
//     hold. More is welcome, never promised: schedules are proved deadlock-free
//     with exactly one message per link.
//  2. The receiver reads a message in place: Peek(), use, Release(). A peeked
//     message stays as it is until its release, whatever else happens.
//  3. The sender builds its message in place: Reserve(), write, Send(); or it
//     sends registered memory by reference, and then leaves that memory alone
//     until Pending(link) says that the message isn't pending any more.
//  4. A payload for several peers is written once: Reserve() takes all links.
//  5. Nothing here allocates, locks or enters the kernel per message (a first
//     message may: it maps, connects, fills). No length, offset or index from
//     a peer is used before it's checked: a bad one is an error of Progress().
//  6. Nothing happens between calls: arrivals, completions and errors are seen
//     only inside the owner's calls. So a test can step N ranks in one thread,
//     in any order it likes.
//  7. Nothing here waits, Connect() aside, which has a deadline and an abort
//     flag, and leaving, which is bounded. Whoever waits does it outside, by
//     ccl/progress.
//  8. A receiver that knows what comes next may say so when it looks: Peek()
//     with what it expects. A transport that has to agree on memory first for a
//     long message can do so early then, and let the payload arrive where the
//     caller wants it.
//
// Thread rule: thread-compatible; one owner at a time. Different endpoints of
// one process may be used from different threads at once.
//
//   const LinkId out[] = {transport.Link(peer, lane)};
//   if (std::byte* slice = transport.Reserve(out, bytes)) {
//     std::memcpy(slice, source, bytes);
//     transport.Send(out, {.envelope = envelope, .bytes = bytes});
//   }
//   if (const Incoming* message = transport.Peek(in, nullptr)) {
//     Use(message->data, message->bytes);
//     transport.Release(in);
//   }
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/clock.h"

namespace trnccl {

// Rides with each message, opaque to transports: the communicator's cookie and
// the fingerprint of the call that the message belongs to.
struct Envelope {
  std::array<uint64_t, 3> words = {};

  // By words: what the compiler makes of arrays is a call of memcmp().
  bool operator==(const Envelope& other) const {
    return ((words[0] ^ other.words[0]) | (words[1] ^ other.words[1]) |
            (words[2] ^ other.words[2])) == 0;
  }
};

// One direction to or from one (peer, lane).
struct LinkId {
  uint32_t index = 0;
};

// Memory to register.
struct MemoryRange {
  enum class Kind : uint8_t {
    kHost,
    kDevice,  // Neuron's, named by its address
    kDmabuf,  // Neuron's, named by a dmabuf and by its address
  };

  const std::byte* base = nullptr;
  size_t bytes = 0;
  Kind kind = Kind::kHost;
  int device = -1;           // kDevice; -1: the driver knows by the address
  int dmabuf_fd = -1;        // kDmabuf; the caller's, who may close it after
  size_t dmabuf_offset = 0;  // of `base` in it
};

// Memory that may be sent by reference. Deregistered by destruction, which the
// owner orders after every message that points into it was released.
class Region {
 public:
  virtual ~Region() = default;
  const std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  // False: it's registered but travels by copy (say, malloc'ed memory where
  // peers can map only shared memory).
  bool by_reference() const { return by_reference_; }

 protected:
  struct Extent {
    const std::byte* base = nullptr;
    size_t bytes = 0;
    bool by_reference = false;
  };
  explicit Region(const Extent& extent)
      : base_(extent.base),
        bytes_(extent.bytes),
        by_reference_(extent.by_reference) {}

 private:
  const std::byte* base_;
  size_t bytes_;
  bool by_reference_;
};

struct Outgoing {
  Envelope envelope;
  size_t bytes = 0;
  // Null: the payload is what was written to the reserved slice. Else: `bytes`
  // from `offset` of the region, with no Reserve() before.
  const Region* region = nullptr;
  size_t offset = 0;
};

// What the caller expects next on a link.
struct Expected {
  size_t bytes = 0;
  // Null, or where the payload should arrive if it may: memory of `region` (the
  // transport's own kind, where traits().any_memory is false), left alone from
  // here on until the message was peeked, or this rank has left.
  std::byte* landing = nullptr;
  const Region* region = nullptr;
};

struct Incoming {
  Envelope envelope;
  const std::byte* data = nullptr;
  size_t bytes = 0;
  // The data lies in the sender's own memory: as it was sent until this message
  // is released, unless the sender leaves or fails before.
  bool by_reference = false;
};

// What this endpoint is and can do. Constant after Connect(), and alike on all
// ranks, except for `address`, `peer_memory` and the descriptors.
struct Traits {
  std::string_view name;
  // What peers need to Connect(): opaque to everyone else, exchanged by the
  // bootstrap. Set from the start.
  std::string address;
  size_t slice_bytes = 0;   // the longest message
  size_t inline_bytes = 0;  // up to here a payload rides in the link itself
  bool by_reference = false;
  // Messages leave this rank's memory as they travel: one is pending until it
  // has, not until the receiver releases it. And Peek() heeds what's expected.
  bool delivers = false;
  // Lost packets are sent again, and what has come is acknowledged, only within
  // calls here: peers may need some after this rank's part is done.
  bool needs_calls = false;
  // All of this process's memory can be one region: Register(nullptr,
  // SIZE_MAX).
  bool any_memory = false;
  // Whether this process may read and write all memory of its peers' processes,
  // registered or not.
  bool peer_memory = false;
  // Descriptors that become readable when a peer dies, or something else
  // happens that Progress() should see. The doorbell isn't among them.
  std::vector<int> wake_fds;
  // By the peer's index in ConnectOptions::peers: a descriptor that's readable
  // once its process has ended, well or badly. -1, or none at all, where that
  // can't be seen.
  std::vector<int> process_fds;
};

struct ConnectOptions {
  struct Peer {
    int rank = 0;
    std::string address;  // its traits().address
  };
  // All peers that this transport is to reach, ascending by rank, without
  // this rank itself.
  std::vector<Peer> peers;
  int rank = 0;
  int lanes = 1;  // alike on all ranks
  Deadline deadline = Deadline::Never();
  const std::atomic<bool>* abort = nullptr;  // may be null
};

enum class Presence {
  kAwake,
  kAsleep,
  // This rank sends nothing more, and takes nothing more. Where its end could
  // take back messages that have left its memory, they count as unsent from now
  // on until peers have released them. It's awake.
  kLeaving,
  // This rank gives up all it's doing here: neither the transport nor peers
  // touch the caller's memory any more. For good.
  kLeft,
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const Traits& traits() const = 0;

  // Once, before anything else. An error names the peer that can't be reached
  // and why.
  virtual absl::Status Connect(const ConnectOptions& options) = 0;

  // Unimplemented where the transport can't reach memory of that kind.
  virtual absl::StatusOr<std::unique_ptr<Region>> RegisterMemory(
      const MemoryRange& memory) = 0;
  absl::StatusOr<std::unique_ptr<Region>> Register(const std::byte* base,
                                                   size_t bytes) {
    return RegisterMemory({.base = base, .bytes = bytes});
  }

  // Memory for one message of up to `bytes` to all of `links`, or null while
  // one of them is full. The next call on this transport that sends must be
  // its Send() or another Reserve(), which replaces it.
  virtual std::byte* Reserve(std::span<const LinkId> links, size_t bytes) = 0;

  // Completes the reserved message (at most the bytes reserved), or sends by
  // reference; false if by reference and a link is full.
  virtual bool Send(std::span<const LinkId> links, const Outgoing& message) = 0;

  // Messages sent on the link that the receiver hasn't released yet; where the
  // transport delivers, that haven't left this rank's memory.
  virtual size_t Pending(LinkId link) = 0;

  // The oldest message of the link that comes from that peer, or null.
  // `expected` may be null; once given for a message it stays the same.
  virtual const Incoming* Peek(LinkId link, const Expected* expected) = 0;
  virtual void Release(LinkId link) = 0;

  // Moves what needs moving and says what went wrong since the last call: a
  // dead peer, a bad message. Errors stay.
  virtual absl::Status Progress() = 0;

  // Announces that the owner is about to sleep until the doorbell rings
  // (transports/doorbell.h) or a descriptor of wake_fds is readable, or is
  // awake again, or has left. After kAsleep the owner must look once more
  // (Peek, Progress, Reserve) before it really sleeps.
  virtual void SetPresence(Presence presence) = 0;

  // Messages sent that still need calls here in order to get on their way: a
  // call isn't complete before there are none.
  size_t unsent() const { return unsent_.load(std::memory_order_relaxed); }

  // Whether something that the owner waits for may have come since this was
  // last asked, where only calls here bring it in (traits().delivers): who is
  // about to sleep must look again then.
  bool TakeArrived() {
    return arrived_.load(std::memory_order_relaxed) &&
           arrived_.exchange(false, std::memory_order_relaxed);
  }

  // The link pair of a peer, by its index in ConnectOptions::peers.
  LinkId Link(size_t peer_index, int lane) const {
    return {static_cast<uint32_t>(peer_index) * static_cast<uint32_t>(lanes_) +
            static_cast<uint32_t>(lane)};
  }

 protected:
  void set_lanes(int lanes) { lanes_ = lanes; }
  void add_unsent() { unsent_.fetch_add(1, std::memory_order_relaxed); }
  void remove_unsent() { unsent_.fetch_sub(1, std::memory_order_relaxed); }
  void set_arrived() { arrived_.store(true, std::memory_order_relaxed); }

 private:
  int lanes_ = 1;
  // Other threads' calls on what transports of a process share may change them.
  std::atomic<size_t> unsent_ = 0;
  std::atomic<bool> arrived_ = false;
};

}  // namespace trnccl
