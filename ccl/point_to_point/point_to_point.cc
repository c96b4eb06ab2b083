// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/point_to_point.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "ccl/base/status_macros.h"
#include "ccl/point_to_point/fifo.h"
#include "ccl/point_to_point/matcher.h"
#include "ccl/point_to_point/message.h"

namespace trnccl {
namespace {

constexpr size_t kMaxEagerBytes = 8 << 10;
// The most messages that one Advance() takes from or gives to one link, so that
// its caller gets to look at deadlines and other peers.
constexpr int kBurst = 16;

// A control message that waits for room on its link.
struct Outbound {
  MessageHeader header;
  Transfer* transfer = nullptr;  // null for an answer
};

// A send by reference, all of it sent, that the peer may still read.
struct StillRead {
  Transfer* transfer = nullptr;
  uint64_t last_message = 0;  // its number on the data link, from 1
};

struct Peer {
  Transport* transport = nullptr;  // null for the rank itself
  LinkId control;
  LinkId data;
  size_t eager_bytes = kMaxEagerBytes;
  Fifo<Outbound> outbound;
  Fifo<Transfer*> offered;    // sends without an answer yet
  Fifo<Transfer*> sending;    // accepted, in the order of the answers
  Fifo<Transfer*> receiving;  // the same, of this rank's answers
  Fifo<StillRead> still_read;
  uint64_t data_messages = 0;  // sent so far
};

bool Holds(const Region& region, const Transfer& send) {
  return send.buffer >= region.base() && send.bytes <= region.bytes() &&
         send.buffer <= region.base() + (region.bytes() - send.bytes);
}

bool GoesByReference(const Peer& peer, const Transfer& send) {
  return peer.transport->traits().by_reference && send.region != nullptr &&
         send.region->by_reference();
}

}  // namespace

struct PointToPoint::State {
  explicit State(const Options& options);

  const Membership membership;
  const uint32_t cookie;
  uint32_t next_id;
  Matcher matcher;
  std::vector<Peer> peers;  // by rank

  void StartSend(Transfer* send);
  void StartReceive(Transfer* receive);
  uint32_t NextId(const Peer& peer);
  void Arrive(Arrived message);
  void Deliver(Transfer* receive, const Arrived& message);

  absl::StatusOr<bool> ReadControl(Peer& peer);
  absl::Status HandleAnswer(Peer& peer, const MessageHeader& header);
  bool WriteControl(Peer& peer);
  bool WriteControlMessage(Peer& peer, const Outbound& outbound);

  absl::StatusOr<bool> ReadData(Peer& peer);
  bool WriteData(Peer& peer);
  bool WriteSlice(Peer& peer, Transfer& send);
  bool FinishReleased(Peer& peer);

  int RankOf(const Peer& peer) const {
    return static_cast<int>(&peer - peers.data());
  }
  absl::Status BrokenBy(const Peer& peer, const absl::Status& cause) const;
};

PointToPoint::State::State(const Options& options)
    : membership(options.membership),
      cookie(options.cookie),
      next_id(options.first_id),
      matcher(options.membership.ranks),
      peers(static_cast<size_t>(options.membership.ranks)) {
  TRNCCL_CHECK(options.routes->size() == peers.size());
  for (size_t rank = 0; rank < peers.size(); ++rank) {
    const Route& route = (*options.routes)[rank];
    if (route.transport == nullptr) continue;
    const size_t slice_bytes = route.transport->traits().slice_bytes;
    TRNCCL_CHECK(slice_bytes >= kLengthBytes);
    Peer& peer = peers[rank];
    peer.transport = route.transport;
    peer.control = route.Link(options.control_lane);
    peer.data = route.Link(options.data_lane);
    peer.eager_bytes = std::min(slice_bytes, kMaxEagerBytes);
  }
}

// ---- Calls -----------------------------------------------------------------

void PointToPoint::State::StartSend(Transfer* send) {
  Peer& peer = peers[static_cast<size_t>(send->peer)];
  TRNCCL_CHECK(send->region == nullptr || Holds(*send->region, *send));
  const MessageHeader header = {.kind = send->bytes <= peer.eager_bytes
                                            ? MessageKind::kEager
                                            : MessageKind::kOffer,
                                .type = send->type,
                                .tag = send->tag,
                                .bytes = send->bytes};
  if (peer.transport == nullptr) {
    return Arrive({.source = membership.rank,
                   .header = header,
                   .data = send->buffer,
                   .local = send});
  }
  peer.outbound.push_back({header, send});
  WriteControl(peer);
}

void PointToPoint::State::StartReceive(Transfer* receive) {
  if (std::optional<Arrived> message = matcher.TakeArrived(*receive)) {
    Deliver(receive, *message);
  } else {
    matcher.Post(receive);
  }
}

// What nothing asked for yet leaves its slice, so that it holds up no message
// behind it. A short send to oneself is then as good as sent.
void PointToPoint::State::Arrive(Arrived message) {
  if (Transfer* receive =
          matcher.TakePosted(message.source, message.header.tag)) {
    Deliver(receive, message);
    return;
  }
  Transfer* sent = nullptr;
  if (message.header.kind == MessageKind::kEager) {
    sent = std::exchange(message.local, nullptr);
  }
  matcher.Keep(std::move(message));
  if (sent != nullptr) Finish(sent, absl::OkStatus());
}

void PointToPoint::State::Deliver(Transfer* receive, const Arrived& message) {
  const MessageHeader& header = message.header;
  absl::Status status = CheckMatch({.source = message.source,
                                    .destination = membership.rank,
                                    .tag = header.tag,
                                    .bytes = header.bytes,
                                    .type = header.type,
                                    .capacity_bytes = receive->bytes,
                                    .wanted_type = receive->type});
  receive->source = message.source;
  receive->received_tag = header.tag;
  if (status.ok()) receive->received_bytes = header.bytes;
  if (header.kind == MessageKind::kEager || message.local != nullptr) {
    if (status.ok() && header.bytes > 0) {
      std::memmove(receive->buffer, message.data, header.bytes);
    }
    if (message.local != nullptr) Finish(message.local, status);
    Finish(receive, std::move(status));
    return;
  }
  Peer& peer = peers[static_cast<size_t>(message.source)];
  peer.outbound.push_back(
      {{.kind = status.ok() ? MessageKind::kAccept : MessageKind::kRefuse,
        .type = receive->type,
        .id = header.id,
        .bytes = receive->bytes}});
  if (status.ok()) {
    receive->id = header.id;
    receive->stage = Transfer::kMoving;
    peer.receiving.push_back(receive);
  } else {
    Finish(receive, std::move(status));
  }
  WriteControl(peer);
}

// ---- The control lane ------------------------------------------------------

absl::StatusOr<bool> PointToPoint::State::ReadControl(Peer& peer) {
  int count = 0;
  for (; count < kBurst; ++count) {
    const Incoming* incoming = peer.transport->Peek(peer.control);
    if (incoming == nullptr) break;
    const absl::StatusOr<MessageHeader> header = OpenMessage(*incoming, cookie);
    if (!header.ok()) return BrokenBy(peer, header.status());
    switch (header->kind) {
      case MessageKind::kEager:
      case MessageKind::kOffer:
        Arrive({.source = RankOf(peer),
                .header = *header,
                .data = incoming->data});
        break;
      case MessageKind::kAccept:
      case MessageKind::kRefuse:
        RETURN_IF_ERROR(HandleAnswer(peer, *header));
        break;
      case MessageKind::kData:
        return BrokenBy(peer, absl::UnavailableError("data on control lane"));
    }
    peer.transport->Release(peer.control);
  }
  return count > 0;
}

absl::Status PointToPoint::State::HandleAnswer(Peer& peer,
                                               const MessageHeader& header) {
  for (size_t i = 0; i < peer.offered.size(); ++i) {
    Transfer* send = peer.offered[i];
    if (send->id != header.id) continue;
    if (header.kind == MessageKind::kAccept) {
      peer.offered.Erase(i);
      send->stage = Transfer::kMoving;
      peer.sending.push_back(send);
      return absl::OkStatus();
    }
    const absl::Status status = CheckMatch({.source = membership.rank,
                                            .destination = send->peer,
                                            .tag = send->tag,
                                            .bytes = send->bytes,
                                            .type = send->type,
                                            .capacity_bytes = header.bytes,
                                            .wanted_type = header.type});
    if (status.ok()) {
      return BrokenBy(peer, absl::UnavailableError(absl::StrCat(
                                "it refuses offer ", header.id,
                                " though the receive is long enough")));
    }
    peer.offered.Erase(i);
    Finish(send, status);
    return absl::OkStatus();
  }
  return BrokenBy(
      peer, absl::UnavailableError(absl::StrCat("it answers offer ", header.id,
                                                ", which wasn't made")));
}

// Ids wrap; one that an old offer still holds is passed over.
uint32_t PointToPoint::State::NextId(const Peer& peer) {
  const auto used = [&peer](uint32_t id) {
    for (size_t i = 0; i < peer.offered.size(); ++i) {
      if (peer.offered[i]->id == id) return true;
    }
    return false;
  };
  while (used(next_id)) ++next_id;
  return next_id;
}

bool PointToPoint::State::WriteControl(Peer& peer) {
  int count = 0;
  for (; count < kBurst && !peer.outbound.empty(); ++count) {
    Outbound outbound = peer.outbound.front();
    const MessageKind kind = outbound.header.kind;
    if (kind == MessageKind::kOffer) outbound.header.id = NextId(peer);
    if (!WriteControlMessage(peer, outbound)) break;
    peer.outbound.pop_front();
    if (kind == MessageKind::kEager) {
      Finish(outbound.transfer, absl::OkStatus());
    } else if (kind == MessageKind::kOffer) {
      outbound.transfer->id = next_id++;
      outbound.transfer->stage = Transfer::kOffered;
      peer.offered.push_back(outbound.transfer);
    }
  }
  return count > 0;
}

bool PointToPoint::State::WriteControlMessage(Peer& peer,
                                              const Outbound& outbound) {
  const MessageHeader& header = outbound.header;
  const bool eager = header.kind == MessageKind::kEager;
  const size_t payload_bytes = eager ? header.bytes : kLengthBytes;
  const LinkId links[] = {peer.control};
  std::byte* slice = peer.transport->Reserve(links, payload_bytes);
  if (slice == nullptr) return false;
  const uint64_t length = header.bytes;
  const void* payload = &length;
  if (eager) payload = outbound.transfer->buffer;
  if (payload_bytes > 0) std::memcpy(slice, payload, payload_bytes);
  return peer.transport->Send(
      links, {.envelope = SealMessage(header, cookie), .bytes = payload_bytes});
}

// ---- The data lane ---------------------------------------------------------

absl::StatusOr<bool> PointToPoint::State::ReadData(Peer& peer) {
  int count = 0;
  for (; count < kBurst && !peer.receiving.empty(); ++count) {
    const Incoming* incoming = peer.transport->Peek(peer.data);
    if (incoming == nullptr) break;
    const absl::StatusOr<MessageHeader> header = OpenMessage(*incoming, cookie);
    if (!header.ok()) return BrokenBy(peer, header.status());
    Transfer* receive = peer.receiving.front();
    const size_t left_bytes = receive->received_bytes - receive->moved_bytes;
    if (header->kind != MessageKind::kData || header->id != receive->id ||
        incoming->bytes == 0 || incoming->bytes > left_bytes) {
      return BrokenBy(peer, absl::UnavailableError(absl::StrCat(
                                incoming->bytes, " bytes of offer ", header->id,
                                " came where up to ", left_bytes, " of offer ",
                                receive->id, " belong")));
    }
    std::memcpy(receive->buffer + receive->moved_bytes, incoming->data,
                incoming->bytes);
    receive->moved_bytes += incoming->bytes;
    peer.transport->Release(peer.data);
    if (receive->moved_bytes == receive->received_bytes) {
      peer.receiving.pop_front();
      Finish(receive, absl::OkStatus());
    }
  }
  return count > 0;
}

bool PointToPoint::State::WriteData(Peer& peer) {
  int count = 0;
  for (; count < kBurst && !peer.sending.empty(); ++count) {
    Transfer* send = peer.sending.front();
    if (!WriteSlice(peer, *send)) break;
    if (send->moved_bytes < send->bytes) continue;
    peer.sending.pop_front();
    if (GoesByReference(peer, *send)) {
      send->stage = Transfer::kStillRead;
      peer.still_read.push_back({send, peer.data_messages});
    } else {
      Finish(send, absl::OkStatus());
    }
  }
  return count > 0;
}

bool PointToPoint::State::WriteSlice(Peer& peer, Transfer& send) {
  const std::byte* source = send.buffer + send.moved_bytes;
  const LinkId links[] = {peer.data};
  Outgoing message = {
      .envelope = SealMessage(
          {.kind = MessageKind::kData, .type = send.type, .id = send.id},
          cookie),
      .bytes = std::min(peer.transport->traits().slice_bytes,
                        send.bytes - send.moved_bytes)};
  if (GoesByReference(peer, send)) {
    message.region = send.region;
    message.offset = static_cast<size_t>(source - send.region->base());
  } else {
    std::byte* slice = peer.transport->Reserve(links, message.bytes);
    if (slice == nullptr) return false;
    std::memcpy(slice, source, message.bytes);
  }
  if (!peer.transport->Send(links, message)) return false;
  ++peer.data_messages;
  send.moved_bytes += message.bytes;
  return true;
}

bool PointToPoint::State::FinishReleased(Peer& peer) {
  const uint64_t released =
      peer.data_messages - peer.transport->Pending(peer.data);
  bool moved = false;
  while (!peer.still_read.empty() &&
         peer.still_read.front().last_message <= released) {
    Finish(peer.still_read.front().transfer, absl::OkStatus());
    peer.still_read.pop_front();
    moved = true;
  }
  return moved;
}

absl::Status PointToPoint::State::BrokenBy(const Peer& peer,
                                           const absl::Status& cause) const {
  return absl::UnavailableError(absl::StrCat(
      "rank ", membership.rank, ": broken point-to-point message from rank ",
      RankOf(peer), ": ", cause.message(),
      "; check that all ranks run the same version"));
}

// ---- The interface ---------------------------------------------------------

PointToPoint::PointToPoint(const Options& options)
    : state_(std::make_unique<State>(options)) {}

PointToPoint::~PointToPoint() = default;

void PointToPoint::Start(Transfer* transfer) {
  transfer->done = false;
  transfer->stage = Transfer::kWaiting;
  transfer->moved_bytes = 0;
  transfer->received_bytes = 0;
  absl::Status status = CheckTransfer(*transfer, state_->membership);
  if (!status.ok()) {
    Finish(transfer, std::move(status));
  } else if (transfer->direction == Transfer::kSend) {
    state_->StartSend(transfer);
  } else {
    state_->StartReceive(transfer);
  }
}

absl::StatusOr<bool> PointToPoint::Advance() {
  bool moved = false;
  for (Peer& peer : state_->peers) {
    if (peer.transport == nullptr) continue;
    ASSIGN_OR_RETURN(const bool read_control, state_->ReadControl(peer));
    moved |= read_control;
    if (!peer.outbound.empty()) moved |= state_->WriteControl(peer);
    if (!peer.receiving.empty()) {
      ASSIGN_OR_RETURN(const bool read_data, state_->ReadData(peer));
      moved |= read_data;
    }
    if (!peer.sending.empty()) moved |= state_->WriteData(peer);
    if (!peer.still_read.empty()) moved |= state_->FinishReleased(peer);
  }
  return moved;
}

bool PointToPoint::busy() const {
  return std::any_of(
      state_->peers.begin(), state_->peers.end(), [](const Peer& peer) {
        return !peer.outbound.empty() || !peer.sending.empty() ||
               !peer.receiving.empty() || !peer.still_read.empty();
      });
}

void PointToPoint::FailAll(const absl::Status& status) {
  const auto fail = [&status](auto& list, auto transfer_of) {
    for (size_t i = 0; i < list.size(); ++i) {
      Transfer* transfer = transfer_of(list[i]);
      if (transfer != nullptr) Finish(transfer, status);
    }
    list.clear();
  };
  const auto itself = [](Transfer* transfer) { return transfer; };
  const auto held = [](const auto& item) { return item.transfer; };
  for (Peer& peer : state_->peers) {
    fail(peer.outbound, held);
    fail(peer.offered, itself);
    fail(peer.sending, itself);
    fail(peer.receiving, itself);
    fail(peer.still_read, held);
  }
  state_->matcher.FailAll(status);
}

std::string PointToPoint::Describe(const Transfer& transfer) const {
  const bool sends = transfer.direction == Transfer::kSend;
  std::string state;
  switch (transfer.stage) {
    case Transfer::kWaiting:
      if (!sends) {
        state = "no matching message yet";
        const std::string others = state_->matcher.UnmatchedText(transfer);
        if (!others.empty()) absl::StrAppend(&state, " (", others, ")");
      } else if (transfer.peer == state_->membership.rank) {
        state = "no matching receive yet";
      } else {
        state = "no room on the link: the peer takes nothing";
      }
      break;
    case Transfer::kOffered:
      state = "no matching receive yet";
      break;
    case Transfer::kMoving:
      state = absl::StrCat(
          transfer.moved_bytes, " of ",
          sends ? transfer.bytes : transfer.received_bytes, " bytes moved",
          sends ? "" : absl::StrCat(" from rank ", transfer.source));
      break;
    case Transfer::kStillRead:
      state = "all sent, the peer still reads it";
      break;
  }
  return absl::StrCat(TransferText(transfer), ": ", state);
}

}  // namespace trnccl
