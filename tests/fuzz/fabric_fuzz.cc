// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Packets of the fabric, over libfabric's TCP on the loopback, with long
// messages tagged or written: a peer that sends any header and payload, and
// strangers. A second communicator of the same ports goes on.
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "ccl/base/check.h"
#include "tests/fuzz/input.h"
#include "transports/fabric/fabric.h"
#include "transports/fabric/fabric_transport.h"

namespace trnccl {
namespace {

using fabric::FabricTransport;
using fabric::WireHeader;

constexpr int kLanes = 2;
constexpr int kManyPolls = 100'000;

// Of two processes, as it were.
using Ports = std::array<std::shared_ptr<fabric::Port>, 2>;
const Ports& PortsOf(FabricProtocol protocol) {
  const auto open = [](FabricProtocol by) {
    auto port =
        OpenFabricPort({.provider = "net", .protocol = by, .adapters = {"lo"}});
    TRNCCL_CHECK(port.ok());
    return *std::move(port);
  };
  const auto both = [&open](FabricProtocol by) {
    return new Ports{open(by), open(by)};
  };
  static const Ports& tagged = *both(FabricProtocol::kTagged);
  static const Ports& written = *both(FabricProtocol::kWrite);
  return protocol == FabricProtocol::kWrite ? written : tagged;
}

// Rank 0 is the victim, rank 1 sends what it likes.
class Pair {
 public:
  explicit Pair(FabricProtocol protocol) {
    for (size_t rank = 0; rank < 2; ++rank)
      ranks_[rank] = *FabricTransport::Create(
          {.own_port = PortsOf(protocol)[rank], .slice_bytes = 64 << 10});
    for (int rank = 0; rank < 2; ++rank) {
      const int peer = 1 - rank;
      TRNCCL_CHECK(at(rank)
                       .Connect({.peers = {{peer, at(peer).traits().address}},
                                 .rank = rank,
                                 .lanes = kLanes})
                       .ok());
    }
  }

  FabricTransport& at(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  FabricTransport& victim() { return at(0); }
  FabricTransport& hostile() { return at(1); }

  void Poll() {
    for (auto& rank : ranks_) static_cast<void>(rank->Progress());
  }

 private:
  std::array<std::unique_ptr<FabricTransport>, 2> ranks_;
};

// What was sent last has come, and so all that was sent before on that link.
void ExpectWorks(Pair& pair) {
  const LinkId link = pair.hostile().Link(0, 0);
  std::byte* slice = pair.hostile().Reserve({&link, 1}, 1);
  TRNCCL_CHECK(slice != nullptr);
  *slice = std::byte{0x5a};
  pair.hostile().Send({&link, 1}, {.bytes = 1});
  const Incoming* message = nullptr;
  for (int i = 0; i < kManyPolls && message == nullptr; ++i) {
    pair.Poll();
    message = pair.victim().Peek(link, nullptr);
  }
  TRNCCL_CHECK(message != nullptr && message->bytes == 1 &&
               *message->data == std::byte{0x5a});
  pair.victim().Release(link);
  TRNCCL_CHECK(pair.victim().Progress().ok());
}

void SendOne(fuzz::Input& input, FabricTransport& hostile) {
  WireHeader header;
  const uint8_t form = input.Take<uint8_t>();
  if (form % 4 == 0) {
    header = input.Take<WireHeader>();
  } else {
    header.source = 1;
    header.kind = static_cast<fabric::WireKind>(input.Take<uint8_t>() % 6);
    header.lane = input.Take<uint8_t>() % (kLanes + 1);
    header.sequence = input.Take<uint8_t>();
    header.released = input.Take<uint8_t>();
    header.stripes = input.Take<uint8_t>() % 3;
    header.bytes = input.Take<uint16_t>();
    header.landing = input.Take<uint8_t>();
  }
  const std::string_view body = input.TakePiece();
  if (form % 4 == 1) header.bytes = body.size();
  const LinkId link = hostile.Link(0, form / 4 % kLanes);
  hostile.SendRaw(link, header,
                  std::as_bytes(std::span(body.data(), body.size())));
}

// What the victim does meanwhile.
void Move(fuzz::Input& input, FabricTransport& victim) {
  const uint8_t form = input.Take<uint8_t>();
  const LinkId link = victim.Link(0, form % kLanes);
  const size_t bytes = input.Take<uint16_t>();
  if (form % 4 < 2) {
    std::byte* slice = victim.Reserve({&link, 1}, bytes);
    if (slice == nullptr) return;
    std::memset(slice, 0, bytes);
    victim.Send({&link, 1}, {.bytes = bytes});
    return;
  }
  static const size_t kNone = 0;
  const Expected expected = {.bytes = bytes};
  const Incoming* message =
      victim.Peek(link, bytes == kNone ? nullptr : &expected);
  if (message == nullptr) return;
  TRNCCL_CHECK(message->bytes <= victim.traits().slice_bytes);
  std::string copy(reinterpret_cast<const char*>(message->data),
                   message->bytes);
  victim.Release(link);
}

}  // namespace
}  // namespace trnccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  static Pair& tagged = *new Pair(FabricProtocol::kTagged);
  static Pair& written = *new Pair(FabricProtocol::kWrite);
  fuzz::Input input(data, size);
  const bool writes = input.Take<uint8_t>() % 4 == 3;
  Pair& bystander = writes ? written : tagged;
  Pair pair(writes ? FabricProtocol::kWrite : FabricProtocol::kTagged);
  int sent = 0;
  while (!input.empty() && sent < 16) {
    if (input.Take<uint8_t>() % 3 == 0) {
      Move(input, pair.victim());
    } else {
      SendOne(input, pair.hostile());
      ++sent;
    }
    pair.Poll();
  }
  // By the same connection: all else has come before.
  ExpectWorks(bystander);
  return 0;
}
