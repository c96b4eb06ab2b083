// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of FabricTransport that receives.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "transports/fabric/fabric_transport.h"

namespace trnccl::fabric {
namespace {

// Shorter payloads aren't worth a message on every rail.
constexpr size_t kStripeBytes = size_t{128} << 10;

}  // namespace

void FabricTransport::OnPacket(Receive* packet) {
  if (packet->header().cookie != cookie_) return port_->Recycle(packet);
  if (!connected_) return early_.push_back(packet);
  Dispatch(packet);
  WakeOwner();
}

// What a peer writes is looked at before it's used.
void FabricTransport::Dispatch(Receive* packet) {
  const WireHeader& header = packet->header();
  const int index = header.source < index_of_rank_.size()
                        ? index_of_rank_[header.source]
                        : -1;
  if (index < 0 || header.lane >= lanes_) {
    Fail(absl::InternalError(absl::StrCat(
        "fabric: rank ", rank_, ": a packet names rank ", header.source,
        " and lane ", header.lane,
        ", which it doesn't talk to; do the ranks' lanes differ?")));
    return port_->Recycle(packet);
  }
  const LinkId link = Link(static_cast<size_t>(index), header.lane);
  port_->Heard(PeerOf(link).address, *packet);
  Credit(link, header.released);
  switch (header.kind) {
    case WireKind::kMessage:
    case WireKind::kAnnounce:
      return OnMessage(link, packet);
    case WireKind::kReady:
      OnReady(link, *packet);
      break;
    case WireKind::kCredit:
      break;
    case WireKind::kLeaving:
      OnLeaving(link);
      break;
    default:
      Fail(About(link, absl::InternalError("it sent a packet of no kind")));
  }
  port_->Recycle(packet);
}

void FabricTransport::OnMessage(LinkId link, Receive* packet) {
  const WireHeader& header = packet->header();
  InLink& in = At(link).in;
  InSlot& slot = in.slots[header.sequence % kWindow];
  const size_t body = packet->bytes - sizeof(WireHeader);
  const bool is_short = header.kind == WireKind::kMessage;
  const bool fits = is_short ? header.bytes == body
                             : body == 0 && header.bytes > 0 &&
                                   header.bytes <= traits_.slice_bytes;
  if (fits && !is_short && IsOvertaken(in, header))
    return port_->Recycle(packet);
  if (header.sequence - in.head >= kWindow || !fits ||
      slot.state != InSlot::State::kNone) {
    Fail(About(link, absl::InternalError(absl::StrCat(
                         "it sent message ", header.sequence, " of ",
                         header.bytes, " bytes where number ", in.head,
                         " or the next ones are due"))));
    return port_->Recycle(packet);
  }
  slot.envelope = header.envelope;
  slot.bytes = header.bytes;
  if (is_short) {
    slot.state = InSlot::State::kPacket;
    slot.packet = packet;
    return;
  }
  // Written payloads may be there before they're announced.
  const bool landed = in.landed && header.sequence == in.head &&
                      header.bytes == in.landing->bytes;
  slot.state = landed ? InSlot::State::kLanded : InSlot::State::kAnnounced;
  port_->Recycle(packet);
}

// A tagged payload that answers a kReady which crossed its announcement may be
// here before that, and released.
bool FabricTransport::IsOvertaken(const InLink& in,
                                  const WireHeader& header) const {
  if (port_->provider().writes) return false;
  if (header.sequence != in.head) return in.head - header.sequence <= kWindow;
  return in.slots[in.head % kWindow].state == InSlot::State::kLanded;
}

const Incoming* FabricTransport::Peek(LinkId link, const Expected* expected) {
  MutexLock lock(port_->mutex());
  InLink& in = At(link).in;
  if (const Incoming* message = Open(in)) return message;
  if (!status_.ok() || left_ || in.landing != nullptr) return nullptr;
  const InSlot& slot = in.slots[in.head % kWindow];
  if (slot.state == InSlot::State::kAnnounced) {
    const bool known = expected != nullptr && expected->bytes == slot.bytes;
    MakeReady(link, known ? *expected : Expected{.bytes = slot.bytes},
              Certainty::kAnnounced);
  } else if (expected != nullptr &&
             expected->bytes > port_->provider().eager_bytes) {
    MakeReady(link, *expected, Certainty::kExpected);
  }
  return nullptr;
}

const Incoming* FabricTransport::Open(InLink& in) {
  const InSlot& slot = in.slots[in.head % kWindow];
  // Another message than the one that was expected, which had a place made.
  if (in.landing != nullptr && !in.landed &&
      (slot.state == InSlot::State::kPacket ||
       (slot.state == InSlot::State::kAnnounced &&
        slot.bytes != in.landing->bytes))) {
    Withdraw(in);
    if (in.landing != nullptr) return nullptr;
  }
  switch (slot.state) {
    case InSlot::State::kPacket:
      in.incoming = {.envelope = slot.envelope,
                     .data = slot.packet->payload(),
                     .bytes = slot.bytes};
      return &in.incoming;
    case InSlot::State::kLanded:
      in.incoming = {.envelope = slot.envelope,
                     .data = in.landing->data,
                     .bytes = slot.bytes};
      return &in.incoming;
    default:
      return nullptr;
  }
}

void FabricTransport::MakeReady(LinkId link, const Expected& expected,
                                Certainty certainty) {
  InLink& in = At(link).in;
  Landing* landing = NewLanding(link, expected);
  if (landing == nullptr) return;
  in.landing = landing;
  in.landed = false;
  if (landing->payload == nullptr) {
    in.region = static_cast<const FabricRegion*>(expected.region);
    ++open_landings_;
  }
  Aim(landing, in.region);
  if (port_->Await(landing, certainty)) return;
  if (landing->payload == nullptr) --open_landings_;
  in.landing = nullptr;
  in.region = nullptr;
  port_->buffers().Free(landing);
}

Landing* FabricTransport::NewLanding(LinkId link, const Expected& expected) {
  Buffers& buffers = port_->buffers();
  absl::StatusOr<Landing*> made = buffers.NewLanding();
  if (!made.ok()) return Fail(made.status()), nullptr;
  Landing* landing = *made;
  landing->bytes = expected.bytes;
  landing->peer_id = PeerOf(link).address.id;
  landing->client = endpoint_;
  landing->link = link.index;
  landing->sequence = At(link).in.head;
  landing->stripes = static_cast<uint32_t>(std::clamp<size_t>(
      expected.bytes / kStripeBytes, 1, PeerOf(link).address.count));
  landing->data = expected.landing;
  const Provider& provider = port_->provider();
  if (expected.landing != nullptr && (!provider.writes || provider.revokes))
    return landing;
  absl::StatusOr<Payload*> payload = buffers.NewPayload(
      {.bytes = expected.bytes, .slice_bytes = traits_.slice_bytes});
  if (!payload.ok()) {
    buffers.Free(landing);
    return Fail(payload.status()), nullptr;
  }
  landing->payload = *payload;
  landing->data = landing->payload->data;
  return landing;
}

// `region`: where the landing lies, or null, if that's the port's memory.
void FabricTransport::Aim(Landing* landing, const FabricRegion* region) const {
  landing->is_device = region != nullptr && region->is_device();
  const Slab* slab = region == nullptr ? landing->payload->slab : nullptr;
  const std::byte* base =
      slab != nullptr ? slab->base() : region->registered_base();
  const bool is_virtual = port_->provider().virtual_keys;
  for (size_t i = 0; i < landing->stripes; ++i) {
    landing->descriptors[i] =
        slab != nullptr ? slab->descriptor(i) : region->descriptor(i);
    landing->targets[i] = {
        .address = is_virtual ? reinterpret_cast<uint64_t>(landing->data)
                              : static_cast<uint64_t>(landing->data - base),
        .key = slab != nullptr ? slab->key(i) : region->key(i)};
  }
}

void FabricTransport::OnAwaited(Landing* landing) {
  const LinkId link{landing->link};
  for (size_t i = 0; i < landing->stripes; ++i) {
    if (!port_->AwaitsCall(PeerOf(link).address, i)) continue;
    fabric::Send* call = NewPacket(link, WireKind::kCredit, 0);
    if (call == nullptr) return;
    call->posted.rail = static_cast<uint8_t>(i);
    port_->Post(call);
  }
  fabric::Send* send = NewPacket(link, WireKind::kReady, landing->sequence);
  if (send == nullptr) return;
  send->header.stripes = static_cast<uint8_t>(landing->stripes);
  send->header.bytes = landing->bytes;
  send->header.landing = landing->number;
  if (port_->provider().writes) {
    send->is_small = true;
    send->bytes = landing->stripes * sizeof(WireTarget);
    std::memcpy(send->small.data(), landing->targets.data(), send->bytes);
  }
  port_->Post(send);
}

void FabricTransport::OnLandingFailed(const Landing& landing,
                                      const absl::Status& status) {
  Fail(About({landing.link},
             absl::Status(status.code(),
                          absl::StrCat("receiving message ", landing.sequence,
                                       " (", landing.bytes, " bytes) failed: ",
                                       absl::string_view(status.message())))));
}

void FabricTransport::OnLanded(Landing* landing) {
  if (landing->payload == nullptr) --open_landings_;
  InLink& in = At({landing->link}).in;
  if (landing->failed || in.landing != landing) {
    if (in.landing == landing) {
      in.landing = nullptr;
      in.region = nullptr;
    }
    return left_ ? port_->Absorb(landing, traits_.slice_bytes)
                 : port_->buffers().Free(landing);
  }
  InSlot& slot = in.slots[in.head % kWindow];
  if (!port_->provider().writes) {
    const WireHeader& header = landing->header;
    if (header.cookie != cookie_ || header.kind != WireKind::kPayload ||
        header.sequence != in.head || header.bytes != landing->bytes) {
      return Fail(About({landing->link},
                        absl::InternalError("a payload came without the "
                                            "header that it must have")));
    }
    Credit({landing->link}, header.released);
    slot.envelope = header.envelope;
    slot.bytes = header.bytes;
    slot.state = InSlot::State::kAnnounced;
  }
  in.landed = true;
  if (slot.state == InSlot::State::kAnnounced)
    slot.state = InSlot::State::kLanded;
  WakeOwner();
}

void FabricTransport::Withdraw(InLink& in) {
  if (in.landed) return;
  port_->GiveUp(in.landing);
}

void FabricTransport::Release(LinkId link) {
  MutexLock lock(port_->mutex());
  InLink& in = At(link).in;
  InSlot& slot = in.slots[in.head % kWindow];
  TRNCCL_CHECK(slot.state == InSlot::State::kPacket ||
               slot.state == InSlot::State::kLanded);
  if (slot.state == InSlot::State::kPacket) {
    port_->Recycle(std::exchange(slot.packet, nullptr));
  } else {
    port_->buffers().Free(std::exchange(in.landing, nullptr));
    in.region = nullptr;
    in.landed = false;
  }
  slot.state = InSlot::State::kNone;
  ++in.head;
  if (status_.ok()) Tell(link);
}

}  // namespace trnccl::fabric
