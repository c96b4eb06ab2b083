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
#include "ccl/base/origin.h"
#include "ccl/base/status_macros.h"
#include "ccl/point_to_point/data_lane.h"
#include "ccl/point_to_point/fifo.h"
#include "ccl/point_to_point/matcher.h"
#include "ccl/point_to_point/memory_reader.h"
#include "ccl/point_to_point/message.h"
#include "ccl/point_to_point/outbound.h"

namespace trnccl {
namespace {

constexpr size_t kMaxEagerBytes = 8 << 10;
// The most messages that one Advance() takes from or gives to one link, so that
// its caller gets to look at deadlines and other peers.
constexpr int kBurst = 16;
// The most that one Advance() reads of peers' memory, for the same reason: some
// tens of microseconds.
constexpr size_t kReadBytes = 512 << 10;

struct Peer {
  Transport* transport = nullptr;  // null for the rank itself
  LinkId control;
  PeerMemory* memory = nullptr;
  uint32_t index = 0;  // of the transport's peers
  size_t eager_bytes = kMaxEagerBytes;
  Fifo<Outbound> outbound;
  Fifo<Transfer*> offered;  // sends without an answer yet
  DataLane data{{}};
};

// By numbers: a region of all memory begins at null.
bool Holds(const Region& region, const Transfer& send) {
  const size_t offset = reinterpret_cast<uintptr_t>(send.buffer) -
                        reinterpret_cast<uintptr_t>(region.base());
  return offset <= region.bytes() && send.bytes <= region.bytes() - offset;
}

RefusedCall CallOf(const MessageHeader& header) {
  return {static_cast<Transfer::Direction>(header.id), header.tag};
}

}  // namespace

struct PointToPoint::State {
  explicit State(const Options& options);

  const Membership membership;
  const uint32_t cookie;
  const size_t unmapped_min_bytes;
  uint32_t next_id;
  Matcher matcher;
  std::vector<Peer> peers;  // by rank
  MemoryReader reader;
  Refusals refusals;

  void StartSend(Transfer* send);
  void StartReceive(Transfer* receive);
  uint32_t NextId(const Peer& peer);
  void Arrive(Arrived&& message);
  void Deliver(Transfer* receive, const Arrived& message);
  void Accept(Transfer* receive);
  void Answer(MessageKind kind, Transfer* receive);

  absl::StatusOr<bool> ReadControl(Peer& peer);
  absl::Status HandleAnswer(Peer& peer, const MessageHeader& header);
  bool WriteControl(Peer& peer);
  void SayOfCall(MessageKind kind, int rank, const RefusedCall& call,
                 std::shared_ptr<const std::string> why);
  absl::Status AdvanceReads();

  int RankOf(const Peer& peer) const {
    return static_cast<int>(&peer - peers.data());
  }
  absl::Status BrokenBy(const Peer& peer, const absl::Status& cause) const;
};

PointToPoint::State::State(const Options& options)
    : membership(options.membership),
      cookie(options.cookie),
      unmapped_min_bytes(options.unmapped_min_bytes),
      next_id(options.first_id),
      matcher(options.membership.ranks),
      peers(static_cast<size_t>(options.membership.ranks)),
      reader(options.membership.rank),
      refusals(options.membership.ranks) {
  TRNCCL_CHECK(options.routes->size() == peers.size());
  for (size_t rank = 0; rank < peers.size(); ++rank) {
    const Route& route = (*options.routes)[rank];
    if (route.transport == nullptr) continue;
    const size_t slice_bytes = route.transport->traits().slice_bytes;
    TRNCCL_CHECK(slice_bytes >= kLengthBytes);
    Peer& peer = peers[rank];
    peer.transport = route.transport;
    peer.control = route.Link(options.control_lane);
    peer.memory = route.memory;
    peer.index = route.peer_index;
    peer.data = DataLane({.transport = route.transport,
                          .link = route.Link(options.data_lane),
                          .peer = static_cast<int>(rank),
                          .cookie = cookie,
                          .gone = options.gone});
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
void PointToPoint::State::Arrive(Arrived&& message) {
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
  receive->id = header.id;
  if (!status.ok()) {
    Answer(MessageKind::kRefuse, receive);
    Finish(receive, std::move(status));
  } else if (header.kind == MessageKind::kReadable) {
    receive->stage = Transfer::kMoving;
    const Peer& peer = peers[static_cast<size_t>(message.source)];
    reader.Add({.receive = receive,
                .memory = peer.memory,
                .source = {.peer_index = peer.index,
                           .offer = message.memory,
                           .bytes = header.bytes}});
  } else {
    Accept(receive);
  }
}

void PointToPoint::State::Accept(Transfer* receive) {
  receive->stage = Transfer::kMoving;
  receive->moved_bytes = 0;
  peers[static_cast<size_t>(receive->source)].data.Receive(receive);
  Answer(MessageKind::kAccept, receive);
}

void PointToPoint::State::Answer(MessageKind kind, Transfer* receive) {
  Peer& peer = peers[static_cast<size_t>(receive->source)];
  const bool taken = kind == MessageKind::kTaken;
  peer.outbound.push_back(
      {{.kind = kind,
        .type = receive->type,
        .id = receive->id,
        .bytes = taken ? receive->received_bytes : receive->bytes},
       taken ? receive : nullptr});
  WriteControl(peer);
}

// ---- The control lane ------------------------------------------------------

absl::StatusOr<bool> PointToPoint::State::ReadControl(Peer& peer) {
  int count = 0;
  for (; count < kBurst; ++count) {
    const Incoming* incoming = peer.transport->Peek(peer.control, nullptr);
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
      case MessageKind::kReadable:
        Arrive({.source = RankOf(peer),
                .header = *header,
                .memory = OfferedMemory(*incoming)});
        break;
      case MessageKind::kAccept:
      case MessageKind::kRefuse:
      case MessageKind::kTaken:
        RETURN_IF_ERROR(HandleAnswer(peer, *header));
        break;
      case MessageKind::kDeclined:
        refusals.Hear(RankOf(peer), CallOf(*header), WhyOf(*incoming));
        break;
      case MessageKind::kMade:
        refusals.HearMade(RankOf(peer), CallOf(*header));
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
  size_t i = 0;
  while (i < peer.offered.size() && peer.offered[i]->id != header.id) ++i;
  if (i == peer.offered.size()) {
    return BrokenBy(
        peer, absl::UnavailableError(absl::StrCat(
                  "it answers offer ", header.id, ", which wasn't made")));
  }
  Transfer* send = peer.offered[i];
  if (header.kind == MessageKind::kAccept) {
    send->stage = Transfer::kMoving;
    peer.data.Send(send);
  } else if (header.kind == MessageKind::kTaken) {
    if (send->stage != Transfer::kReadable || header.bytes != send->bytes) {
      return BrokenBy(peer, absl::UnavailableError(absl::StrCat(
                                "it read ", header.bytes, " bytes of offer ",
                                header.id, ", which it can't have")));
    }
    Finish(send, absl::OkStatus());
  } else {
    absl::Status status = CheckMatch({.source = membership.rank,
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
    Finish(send, std::move(status));
  }
  peer.offered.Erase(i);
  return absl::OkStatus();
}

void PointToPoint::State::SayOfCall(MessageKind kind, int rank,
                                    const RefusedCall& call,
                                    std::shared_ptr<const std::string> why) {
  Peer& peer = peers[static_cast<size_t>(rank)];
  if (peer.transport == nullptr) return;
  peer.outbound.push_back(
      {.header = {.kind = kind, .id = call.direction, .tag = call.tag},
       .why = std::move(why)});
  WriteControl(peer);
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
    if (outbound.header.kind == MessageKind::kOffer)
      outbound.header.id = NextId(peer);
    if (!WriteMessage(&outbound, {.transport = peer.transport,
                                  .link = peer.control,
                                  .memory = peer.memory,
                                  .unmapped_min_bytes = unmapped_min_bytes,
                                  .cookie = cookie}))
      break;
    peer.outbound.pop_front();
    Transfer* transfer = outbound.transfer;
    switch (outbound.header.kind) {
      case MessageKind::kEager:
      case MessageKind::kTaken:
        Finish(transfer, absl::OkStatus());
        break;
      case MessageKind::kOffer:
      case MessageKind::kReadable:
        transfer->id = outbound.header.id;
        transfer->stage = outbound.header.kind == MessageKind::kOffer
                              ? Transfer::kOffered
                              : Transfer::kReadable;
        next_id = transfer->id + 1;
        peer.offered.push_back(transfer);
        break;
      default:
        break;
    }
  }
  return count > 0;
}

absl::Status PointToPoint::State::AdvanceReads() {
  size_t left_bytes = kReadBytes;
  while (left_bytes > 0 && !reader.empty()) {
    ASSIGN_OR_RETURN(const std::optional<MemoryReader::Ended> ended,
                     reader.Advance(&left_bytes));
    if (!ended.has_value()) break;
    if (ended->reached) {
      Answer(MessageKind::kTaken, ended->receive);
    } else {
      Accept(ended->receive);
    }
  }
  return absl::OkStatus();
}

absl::Status PointToPoint::State::BrokenBy(const Peer& peer,
                                           const absl::Status& cause) const {
  // Then the message isn't to blame.
  if (OriginOf(cause).has_value()) return cause;
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
  if (!status.ok()) return Finish(transfer, std::move(status));
  // What peers refused alike counts; an error is the next Advance()'s.
  if (state_->refusals.owes()) static_cast<void>(Advance());
  state_->refusals.TakeBack(
      *transfer, [this](int rank, const RefusedCall& call) {
        state_->SayOfCall(MessageKind::kMade, rank, call, nullptr);
      });
  if (transfer->direction == Transfer::kSend) {
    state_->StartSend(transfer);
  } else {
    state_->StartReceive(transfer);
  }
}

void PointToPoint::Refuse(const Transfer& refused, std::string_view why) {
  const RefusedCall call = {refused.direction, refused.tag};
  const bool any =
      call.direction == Transfer::kReceive && refused.peer == kAnySource;
  const auto text = std::make_shared<const std::string>(why);
  for (int rank = 0; rank < state_->membership.ranks; ++rank) {
    if ((any || refused.peer == rank) && rank != state_->membership.rank &&
        state_->refusals.Note(rank, call))
      state_->SayOfCall(MessageKind::kDeclined, rank, call, text);
  }
}

const Refusals::Heard* PointToPoint::RefusalBy(int rank,
                                               const Transfer& waiting) const {
  const bool moves = waiting.done || waiting.stage == Transfer::kMoving ||
                     waiting.stage == Transfer::kStillRead;
  return moves ? nullptr : state_->refusals.Against(rank, waiting);
}

absl::StatusOr<bool> PointToPoint::Advance() {
  bool moved = false;
  for (Peer& peer : state_->peers) {
    if (peer.transport == nullptr) continue;
    ASSIGN_OR_RETURN(const bool read_control, state_->ReadControl(peer));
    moved |= read_control;
    if (!peer.outbound.empty()) moved |= state_->WriteControl(peer);
    if (!peer.data.busy()) continue;
    const absl::StatusOr<bool> moved_data = peer.data.Advance();
    if (!moved_data.ok()) return state_->BrokenBy(peer, moved_data.status());
    moved |= *moved_data;
  }
  if (!state_->reader.empty()) {
    RETURN_IF_ERROR(state_->AdvanceReads());
    moved = true;
  }
  return moved;
}

bool PointToPoint::busy() const {
  return !state_->reader.empty() ||
         std::any_of(state_->peers.begin(), state_->peers.end(),
                     [](const Peer& peer) {
                       return !peer.outbound.empty() || peer.data.busy();
                     });
}

absl::Status PointToPoint::Leave() {
  absl::Status status;
  for (Peer& peer : state_->peers) {
    bool reads = false;
    for (size_t i = 0; i < peer.offered.size(); ++i)
      reads |= peer.offered[i]->stage == Transfer::kReadable;
    if (reads && status.ok()) status = peer.memory->Leave();
  }
  return status;
}

void PointToPoint::FailAll(const absl::Status& status) {
  const auto fail = [&status](auto& list, auto transfer_of) {
    for (size_t i = 0; i < list.size(); ++i) {
      Transfer* transfer = transfer_of(list[i]);
      if (transfer != nullptr) Finish(transfer, status);
    }
    list.clear();
  };
  for (Peer& peer : state_->peers) {
    fail(peer.outbound, [](const Outbound& item) { return item.transfer; });
    fail(peer.offered, [](Transfer* transfer) { return transfer; });
    peer.data.FailAll(status);
  }
  state_->reader.FailAll(status);
  state_->matcher.FailAll(status);
}

std::string PointToPoint::Describe(const Transfer& transfer) const {
  const bool waits = transfer.stage == Transfer::kWaiting;
  const bool sends = transfer.direction == Transfer::kSend;
  std::string stage = StageText(transfer);
  if (waits && !sends) {
    const std::string others = state_->matcher.UnmatchedText(transfer);
    if (!others.empty()) absl::StrAppend(&stage, " (", others, ")");
  } else if (waits && transfer.peer != state_->membership.rank) {
    stage = "no room on the link: the peer takes nothing";
  }
  return absl::StrCat(TransferText(transfer), ": ", stage);
}

}  // namespace trnccl
