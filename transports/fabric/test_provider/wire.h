// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What the test provider's endpoints say to each other, and a stream socket
// that carries it: a header of fixed size, then its payload. Not the rules of
// who may say what when: endpoint.h.
//
// Thread rule: thread-compatible. Nothing here waits.
//
//   Connection connection(fd);
//   connection.Queue(header, payload);
//   if (!connection.Flush()) PeerIsGone();
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "transports/fabric/test_provider/settings.h"

namespace trnccl::manners {

using Bytes = std::vector<std::byte>;

// Where an endpoint can be reached; as large as EFA's. The nonce tells an
// endpoint from a former one of the same process and number.
struct Address {
  uint64_t magic = 0;
  uint64_t nonce = 0;
  uint32_t process = 0;
  uint32_t endpoint = 0;
  uint32_t nic = 0;
  Flavour flavour = Flavour::kEfa;

  auto operator<=>(const Address&) const = default;
};
static_assert(sizeof(Address) == 32);
constexpr uint64_t kAddressMagic = 0x7372656e6e616d01;  // "manners"
std::string TextOf(const Address& address);

enum class Kind : uint32_t { kMessage, kTagged, kWrite, kRead, kDone };

// How an operation ended; also the prov_errno of error completions.
enum class Outcome : uint32_t {
  kOk,
  kReceiverNotReady,
  kTruncated,
  kCanceled,
  kUnresponsive,
  kInjected,
  kClosedKey,
  kUnknownKey,
  kOutOfRange,
  kNoAccess,
  kUnknownInitiator,
  kCount,
};
const char* TextOf(Outcome outcome);

struct Header {
  uint64_t magic = kAddressMagic;
  Kind kind = Kind::kMessage;
  Outcome outcome = Outcome::kOk;  // of kDone
  Address source;
  uint64_t operation = 0;  // the initiator's number
  uint64_t sequence = 0;   // of messages to this peer
  uint64_t tag = 0;
  uint64_t data = 0;
  uint64_t flags = 0;    // FI_REMOTE_CQ_DATA, FI_DELIVERY_COMPLETE
  uint64_t address = 0;  // of remote memory
  uint64_t key = 0;
  uint64_t bytes = 0;    // of the operation
  uint64_t payload = 0;  // that follow this header
};

struct Packet {
  Header header;
  Bytes payload;
};

class Connection {
 public:
  // Takes the socket over, which doesn't block.
  explicit Connection(int fd) : fd_(fd) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  // Whether something waits until the socket takes more.
  bool blocked() const { return !outgoing_.empty(); }

  void Queue(Header header, const Bytes& payload);
  // Both return false when the peer is gone.
  bool Flush();
  bool Receive(std::vector<Packet>& packets);

 private:
  int fd_;
  std::deque<Bytes> outgoing_;
  size_t sent_ = 0;  // of outgoing_.front()
  Packet incoming_;
  size_t received_ = 0;  // of incoming_, header included
};

// Each returns a descriptor, or -errno. Connecting to an address that nobody
// listens on is -ECONNREFUSED.
int Listen(const Address& address);
int Accept(int listener);
int Connect(const Address& address);

}  // namespace trnccl::manners
