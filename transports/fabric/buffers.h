// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The port's own memory: what packets arrive in, what outgoing headers and
// payloads lie in, what long messages land in. Made in slabs, registered where
// the provider asks for it, taken from free lists; nothing is given back before
// the port ends, so that once a job's pattern has been seen nothing allocates.
//
// Thread rule: thread-compatible; the port's lock guards all.
//
//   ASSIGN_OR_RETURN(Send* send, buffers.NewSend());
//   buffers.Free(send);
#pragma once

#include <rdma/fabric.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transports/fabric/rail.h"
#include "transports/fabric/wire.h"

namespace trnccl::fabric {

// A piece of memory, registered on every rail where that's needed.
class Slab {
 public:
  // Registered on all of `rails`.
  struct Options {
    std::span<const std::unique_ptr<Rail>> rails;
    uint64_t access = 0;  // as of Rail::Register()
  };
  static absl::StatusOr<std::unique_ptr<Slab>> Make(const Options& options,
                                                    size_t bytes);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  std::byte* base() const { return base_; }
  void* descriptor(size_t rail) const {
    return registrations_.empty() ? nullptr : registrations_[rail].descriptor();
  }
  uint64_t key(size_t rail) const {
    return registrations_.empty() ? 0 : registrations_[rail].key();
  }

 private:
  Slab(std::byte* base, size_t bytes) : base_(base), bytes_(bytes) {}
  std::byte* base_;
  size_t bytes_;
  std::vector<Registration> registrations_;  // by rail
};

// What libfabric hands back when it's done with something that was posted.
// Its own context comes first.
struct Posted {
  enum class Kind : uint8_t { kReceive, kSend, kLanding };

  fi_context2 context;
  Kind kind = Kind::kReceive;
  uint8_t rail = 0;
  End end = End::kTaking;  // of receives and landings
  void* owner = nullptr;   // the Receive, Send or Landing that it belongs to

  // What libfabric's word for it stands for: the context comes first.
  static Posted* Of(void* context) { return static_cast<Posted*>(context); }
};

// A buffer for one packet.
struct Receive {
  Posted posted;
  std::byte* data = nullptr;  // a header and the payload
  const Slab* slab = nullptr;
  size_t bytes = 0;  // that arrived, with the header
  Receive* next = nullptr;

  const WireHeader& header() const {
    return *reinterpret_cast<const WireHeader*>(data);
  }
  const std::byte* payload() const { return data + sizeof(WireHeader); }
};

// Memory for one message's payload, sent or landed.
struct Payload {
  std::byte* data = nullptr;
  const Slab* slab = nullptr;
  size_t bytes = 0;  // that it can hold
  int references = 0;
  bool is_long = false;
  Payload* next = nullptr;
};

// Payloads up to here lie behind their header.
inline constexpr size_t kSmallBytes = 512;

// Something to send.
struct Send {
  enum class Travel : uint8_t { kPacket, kTagged, kWrite };

  // In one piece: what a small packet is.
  WireHeader header;
  std::array<std::byte, kSmallBytes> small = {};
  Posted posted;
  const Slab* slab = nullptr;  // this very object's
  Travel travel = Travel::kPacket;
  bool has_header = true;
  bool is_courtesy = false;  // no call waits until it has left
  bool is_small = false;     // the payload, if any, lies in `small`
  size_t bytes = 0;          // of the payload
  const std::byte* data = nullptr;
  void* descriptor = nullptr;
  Payload* payload = nullptr;  // where `data` lies, if it's the port's
  uint32_t peer_id = 0;        // PeerAddress::id
  uint64_t tag = 0;
  WireTarget target;
  uint32_t client = 0;  // the number of Port::Attach(); 0: nobody asks
  uint32_t link = 0;    // the client's own
  uint32_t sequence = 0;
  Send* next = nullptr;

  // Whether the payload lies in the caller's memory.
  bool by_reference() const {
    return data != nullptr && payload == nullptr && !is_small && bytes > 0;
  }
};

// Memory that waits for a long message.
struct Landing {
  enum class Step : uint8_t {
    kPosting,   // handed to the endpoints, if it must be
    kArriving,  // the peer may be told
    kFencing,   // all is there; reads make sure that it can be seen
  };

  std::array<Posted, kMaxRails> posted;
  Step step = Step::kPosting;
  uint32_t done = 0;  // stripes that have been handed over, in this step
  WireHeader header;  // arrives before the payload, if tagged
  uint32_t number = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  Payload* payload = nullptr;  // the port's own memory, or null: the caller's
  std::array<void*, kMaxRails> descriptors = {};  // of `data`, by rail
  WireTargets targets;  // how adapters reach it, by rail, if it's written to
  bool is_device = false;
  uint32_t peer_id = 0;  // PeerAddress::id
  uint32_t client = 0;
  uint32_t link = 0;
  uint32_t sequence = 0;
  uint32_t stripes = 0;
  uint32_t open = 0;  // stripes that haven't arrived, nor been given up
  bool failed = false;
  const Slab* slab = nullptr;  // this very object's
  Landing* next = nullptr;
};

class Buffers {
 public:
  struct Options {
    std::span<const std::unique_ptr<Rail>> rails;  // that must know all memory
    size_t eager_bytes = 0;
    uint64_t access = 0;  // that the rails' capabilities allow
  };
  explicit Buffers(const Options& options) : options_(options) {}

  // Registered memory, kept.
  absl::StatusOr<const Slab*> Grow(size_t bytes);
  absl::StatusOr<Receive*> NewReceive();
  absl::StatusOr<Send*> NewSend();
  absl::StatusOr<Landing*> NewLanding();
  // One reference. `bytes` up to the eager size give a short one, else
  // `slice_bytes` of it.
  struct Size {
    size_t bytes = 0;
    size_t slice_bytes = 0;
  };
  absl::StatusOr<Payload*> NewPayload(const Size& size);

  void Free(Receive* receive) { Push(&receives_, receive); }
  void Free(Send* send);
  void Free(Landing* landing);
  void Drop(Payload* payload);

  // The landing of a number that a peer names, or null.
  Landing* Find(uint32_t number) const;

 private:
  template <typename T>
  static void Push(T** list, T* item) {
    item->next = *list;
    *list = item;
  }
  template <typename T>
  static T* Pop(T** list) {
    T* item = *list;
    if (item != nullptr) *list = item->next;
    return item;
  }
  Payload** ListOf(size_t bytes);
  absl::Status MorePayloads(Payload** list, size_t bytes, size_t count);

  const Options options_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::vector<std::unique_ptr<Receive[]>> receive_objects_;
  std::vector<std::unique_ptr<Payload[]>> payload_objects_;
  std::vector<Landing*> landings_;  // by index
  Receive* receives_ = nullptr;
  Send* sends_ = nullptr;
  Landing* free_landings_ = nullptr;
  Payload* short_payloads_ = nullptr;
  struct LongPayloads {
    size_t bytes = 0;
    Payload* list = nullptr;
  };
  std::vector<LongPayloads> long_payloads_;  // one a slice size in use
};

}  // namespace trnccl::fabric
