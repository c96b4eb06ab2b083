// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of FabricTransport that sends.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "transports/fabric/fabric_transport.h"

namespace trnccl::fabric {

bool FabricTransport::Full(LinkId link) {
  const OutLink& out = At(link).out;
  return out.next - out.released >= kWindow ||
         out.slots[out.next % kWindow].state != OutSlot::State::kFree;
}

std::byte* FabricTransport::Reserve(std::span<const LinkId> links,
                                    size_t bytes) {
  TRNCCL_CHECK(bytes <= traits_.slice_bytes);
  MutexLock lock(port_->mutex());
  Buffers& buffers = port_->buffers();
  if (reserved_ != nullptr) buffers.Drop(std::exchange(reserved_, nullptr));
  if (!status_.ok() ||
      std::ranges::any_of(links, [this](LinkId link) { return Full(link); }))
    return nullptr;
  if (links.size() == 1 && bytes <= traits_.inline_bytes) {
    if (reserved_small_ == nullptr) {
      absl::StatusOr<fabric::Send*> send = buffers.NewSend();
      if (!send.ok()) return Fail(send.status()), nullptr;
      reserved_small_ = *send;
    }
    return reserved_small_->small.data();
  }
  absl::StatusOr<Payload*> payload =
      buffers.NewPayload({.bytes = bytes, .slice_bytes = traits_.slice_bytes});
  if (!payload.ok()) return Fail(payload.status()), nullptr;
  reserved_ = *payload;
  return reserved_->data;
}

bool FabricTransport::Send(std::span<const LinkId> links,
                           const Outgoing& message) {
  MutexLock lock(port_->mutex());
  if (message.region != nullptr &&
      std::ranges::any_of(links, [this](LinkId link) { return Full(link); }))
    return false;
  for (const LinkId link : links) SendTo(link, message);
  if (reserved_ != nullptr)
    port_->buffers().Drop(std::exchange(reserved_, nullptr));
  return true;
}

fabric::Send* FabricTransport::NewPacket(LinkId link, WireKind kind,
                                         uint32_t sequence) {
  fabric::Send* send = nullptr;
  if (kind == WireKind::kMessage)
    send = std::exchange(reserved_small_, nullptr);
  if (send == nullptr) {
    absl::StatusOr<fabric::Send*> made = port_->buffers().NewSend();
    if (!made.ok()) return Fail(made.status()), nullptr;
    send = *made;
  }
  const Peer& peer = PeerOf(link);
  InLink& in = At(link).in;
  // What's written has no header that would tell.
  const bool tells = kind != WireKind::kPayload || !port_->provider().writes;
  if (tells) in.told = in.head;
  send->header.cookie = peer.cookie;
  send->header.endpoint = peer.endpoint;
  send->header.source = static_cast<uint32_t>(rank_);
  send->header.lane = static_cast<uint16_t>(link.index % lanes_);
  send->header.kind = kind;
  send->header.sequence = sequence;
  send->header.released = in.head;
  send->posted.rail = static_cast<uint8_t>(RailOf(link));
  send->peer_id = peer.address.id;
  send->client = endpoint_;
  send->link = link.index;
  send->sequence = sequence;
  send->is_courtesy = kind == WireKind::kLeaving ||
                      (kind == WireKind::kCredit && in.tells_each);
  CountPacket(*send);
  return send;
}

void FabricTransport::CountPacket(const fabric::Send& send) {
  if (send.is_courtesy) {
    ++courtesies_;
  } else {
    add_unsent();
  }
}

void FabricTransport::UncountPacket(const fabric::Send& send) {
  if (send.is_courtesy) {
    --courtesies_;
  } else {
    remove_unsent();
  }
}

void FabricTransport::SendTo(LinkId link, const Outgoing& message) {
  OutLink& out = At(link).out;
  const uint32_t sequence = out.next++;
  // A peer writes a word once it has taken half a window.
  if (message.bytes >= kBulkBytes || out.next - out.released > kWindow / 2)
    out.lingering = out.next;
  OutSlot& slot = out.slots[sequence % kWindow];
  slot = {.state = OutSlot::State::kSending,
          .envelope = message.envelope,
          .bytes = message.bytes,
          .region = static_cast<const FabricRegion*>(message.region)};
  if (message.region != nullptr) {
    slot.data = message.region->base() + message.offset;
  } else if (reserved_ != nullptr) {
    slot.data = reserved_->data;
    slot.payload = reserved_;
    ++reserved_->references;
  }
  // Until it has left, whether or not the receiver has made room already.
  add_unsent();
  const bool was_ready = std::exchange(out.is_ready, false);
  // A packet's header lies in the host's memory, and adapters don't gather that
  // and a device's.
  const bool is_device = slot.region != nullptr && slot.region->is_device();
  if (message.bytes == 0 ||
      (message.bytes <= port_->provider().eager_bytes && !is_device))
    return SendShort(link, slot, sequence);
  slot.state = OutSlot::State::kAwaitsReady;
  // A place that was made for something else is of no use: the receiver will
  // see by the announcement what comes instead.
  const bool fits = was_ready && out.ready.sequence == sequence &&
                    out.ready.bytes == message.bytes;
  if (!fits || port_->provider().writes) Announce(link, slot, sequence);
  if (fits) SendPayload(link, sequence, out.ready, out.targets);
}

void FabricTransport::SendShort(LinkId link, const OutSlot& slot,
                                uint32_t sequence) {
  // The payload may lie in the very send that was reserved for it.
  const bool in_place = slot.data == nullptr && slot.bytes > 0;
  fabric::Send* send = NewPacket(link, WireKind::kMessage, sequence);
  if (send == nullptr) return;
  send->header.bytes = slot.bytes;
  send->header.envelope = slot.envelope;
  send->bytes = slot.bytes;
  send->is_small = in_place;
  if (!in_place && slot.bytes <= kSmallBytes) {
    std::copy_n(slot.data, slot.bytes, send->small.data());
    send->is_small = true;
  } else if (!in_place) {
    send->data = slot.data;
    send->payload = slot.payload;
    const size_t rail = send->posted.rail;
    if (slot.payload != nullptr) {
      ++slot.payload->references;
      send->descriptor = slot.payload->slab->descriptor(rail);
    } else {
      send->descriptor = slot.region->descriptor(rail);
      ++open_references_;
    }
  }
  At(link).out.slots[sequence % kWindow].open = 1;
  port_->Post(send);
}

void FabricTransport::Announce(LinkId link, const OutSlot& slot,
                               uint32_t sequence) {
  fabric::Send* send = NewPacket(link, WireKind::kAnnounce, sequence);
  if (send == nullptr) return;
  send->header.bytes = slot.bytes;
  send->header.envelope = slot.envelope;
  port_->Post(send);
}

void FabricTransport::SendPayload(LinkId link, uint32_t sequence,
                                  const WireHeader& ready,
                                  const WireTargets& targets) {
  OutSlot& slot = At(link).out.slots[sequence % kWindow];
  slot.state = OutSlot::State::kSending;
  slot.open = ready.stripes;
  const size_t stripes = ready.stripes;
  const bool writes = port_->provider().writes;
  for (size_t i = 0; i < stripes; ++i) {
    fabric::Send* send = NewPacket(link, WireKind::kPayload, sequence);
    if (send == nullptr) return;
    const Port::Stripe stripe = Port::StripeOf(slot.bytes, stripes, i);
    send->travel =
        writes ? fabric::Send::Travel::kWrite : fabric::Send::Travel::kTagged;
    send->has_header = !writes && i == 0;
    send->header.bytes = slot.bytes;
    send->header.envelope = slot.envelope;
    send->posted.rail = static_cast<uint8_t>(i);
    send->tag = writes ? ready.landing : ready.landing << 4 | i;
    send->target = {.address = targets[i].address + stripe.offset,
                    .key = targets[i].key};
    send->data = slot.data + stripe.offset;
    send->bytes = stripe.bytes;
    if (slot.payload != nullptr) {
      ++slot.payload->references;
      send->payload = slot.payload;
      send->descriptor = slot.payload->slab->descriptor(i);
    } else {
      send->descriptor = slot.region->descriptor(i);
      if (send->by_reference()) ++open_references_;
    }
    port_->Post(send);
  }
}

void FabricTransport::OnSent(const fabric::Send& send) {
  UncountPacket(send);
  if (send.by_reference()) --open_references_;
  if (send.header.kind != WireKind::kMessage &&
      send.header.kind != WireKind::kPayload)
    return;
  OutLink& out = At({send.link}).out;
  OutSlot& slot = out.slots[send.sequence % kWindow];
  if (--slot.open > 0) return;
  slot.state = OutSlot::State::kFree;
  remove_unsent();
  if (slot.payload != nullptr)
    port_->buffers().Drop(std::exchange(slot.payload, nullptr));
  while (out.delivered != out.next &&
         out.slots[out.delivered % kWindow].state == OutSlot::State::kFree)
    ++out.delivered;
  WakeOwner();
}

void FabricTransport::OnSendFailed(const fabric::Send& send,
                                   const absl::Status& status) {
  UncountPacket(send);
  if (send.by_reference() && open_references_ > 0) --open_references_;
  // A peer that has all it needs may be gone.
  if (send.header.kind == WireKind::kLeaving) TakesNoMore(At({send.link}).out);
  if (left_ || send.is_courtesy || send.header.kind == WireKind::kCredit)
    return;
  const bool is_ready = send.header.kind == WireKind::kReady;
  Fail(About(
      {send.link},
      absl::Status(
          status.code(),
          absl::StrCat(is_ready ? "asking for message " : "sending message ",
                       send.sequence, " (", send.header.bytes,
                       " bytes) failed: ", absl::string_view(status.message()),
                       "; the peer may have died, or its network is down, or "
                       "TRNCCL_SOCKET_IFNAME names different networks"))));
}

size_t FabricTransport::Pending(LinkId link) {
  MutexLock lock(port_->mutex());
  const OutLink& out = At(link).out;
  return out.next - out.delivered;
}

void FabricTransport::Tell(LinkId link) {
  const InLink& in = At(link).in;
  if (in.head - in.told >= kWindow / 2 || in.tells_each) [[unlikely]]
    SayReleased(link, WireKind::kCredit);
}

void FabricTransport::SayReleased(LinkId link, WireKind kind) {
  if (fabric::Send* send = NewPacket(link, kind, 0)) port_->Post(send);
}

void FabricTransport::Credit(LinkId link, uint32_t released) {
  OutLink& out = At(link).out;
  const auto news = static_cast<int32_t>(released - out.released);
  // Packets overtake each other: what's known may be newer.
  if (news <= 0) return;
  if (static_cast<uint32_t>(news) > out.next - out.released) {
    return Fail(About(
        link, absl::InternalError("it released messages it wasn't sent")));
  }
  out.released = released;
  if (static_cast<int32_t>(out.lingering - released) <= 0) EndWait(out);
}

void FabricTransport::OnReady(LinkId link, const Receive& packet) {
  const WireHeader& header = packet.header();
  OutLink& out = At(link).out;
  const size_t most = std::min(PeerOf(link).address.count, kMaxRails);
  const bool writes = port_->provider().writes;
  const size_t body = writes ? header.stripes * sizeof(WireTarget) : 0;
  const bool is_later = static_cast<int32_t>(header.sequence - out.next) > 0;
  if (header.stripes < 1 || header.stripes > most || is_later ||
      header.bytes > traits_.slice_bytes || header.landing > UINT32_MAX ||
      packet.bytes != sizeof(WireHeader) + body) {
    return Fail(
        About(link, absl::InternalError("it named a place for a message that "
                                        "can't be one")));
  }
  WireTargets targets;
  std::memcpy(targets.data(), packet.payload(), body);
  if (header.sequence == out.next) {
    out.is_ready = true;
    out.ready = header;
    out.targets = targets;
    return;
  }
  OutSlot& slot = out.slots[header.sequence % kWindow];
  const bool awaited = out.next - header.sequence <= kWindow &&
                       slot.state == OutSlot::State::kAwaitsReady;
  // The place for a message that went another way: short, or of another length.
  if (!awaited || header.bytes != slot.bytes || left_) return;
  SendPayload(link, header.sequence, header, targets);
}

void FabricTransport::SendRaw(LinkId link, const WireHeader& header,
                              std::span<const std::byte> body) {
  TRNCCL_CHECK(body.size() <= kSmallBytes);
  MutexLock lock(port_->mutex());
  fabric::Send* send = NewPacket(link, WireKind::kCredit, 0);
  if (send == nullptr) return;
  UncountPacket(*send);
  const WireHeader own = send->header;
  send->header = header;
  if (header.cookie == 0) send->header.cookie = own.cookie;
  if (header.endpoint == 0) send->header.endpoint = own.endpoint;
  if (header.source == 0) send->header.source = own.source;
  std::ranges::copy(body, send->small.begin());
  send->bytes = body.size();
  send->is_small = true;
  // It isn't one of the link's own.
  send->client = 0;
  port_->Post(send);
}

}  // namespace trnccl::fabric
