// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <algorithm>
#include <numeric>

#include "transports/fabric/test_provider/breach.h"
#include "transports/fabric/test_provider/endpoint.h"

namespace trnccl::manners {
namespace {

bool IsMessage(const Header& header) {
  return header.kind == Kind::kMessage || header.kind == Kind::kTagged;
}

// Writes up to here are seen at once or not at all.
constexpr size_t kWholeBytes = 64;

// What an eager message's reply has been, so that it gets no other.
constexpr uint64_t kReplied = uint64_t{1} << 63;

}  // namespace

void Endpoint::Progress() {
  if (!enabled) return;
  Collect();
  if (receive_posted) MatchUnready();
  DeliverPool();
  tx_cq->UpdateSignal();
  rx_cq->UpdateSignal();
}

bool Endpoint::HasWork() const { return !pool.empty() || receive_posted; }

void Endpoint::Collect() {
  std::vector<Arrival> arrived;
  std::vector<Address> gone;
  links.Poll(arrived, gone);
  for (Arrival& arrival : arrived) {
    const Header& header = arrival.packet.header;
    if (silenced.contains(header.source)) continue;
    if (IsMessage(header) && header.payload != header.bytes)
      Breach("a message that isn't as long as it says");
    arrival.hold = domain->fabric->Draw(domain->fabric->settings.hold + 1);
    pool.push_back(std::move(arrival));
  }
  for (const Address& peer : gone) FailPeer(peer, Outcome::kUnresponsive);
}

void Endpoint::FailPeer(const Address& peer, Outcome outcome) {
  dead.insert(peer);
  std::set<uint64_t> answered;
  for (const Arrival& arrival : pool) {
    const Header& header = arrival.packet.header;
    if (header.kind == Kind::kDone) answered.insert(header.operation);
  }
  for (const auto& [id, operation] : outstanding) {
    if (operation.peer != peer || answered.contains(id)) continue;
    Arrival arrival;
    arrival.packet.header = {.kind = Kind::kDone,
                             .outcome = outcome,
                             .source = peer,
                             .operation = id};
    pool.push_back(std::move(arrival));
  }
}

// Each arrival whose time has come, in an order that's drawn. What can't be
// delivered yet, for its order or a full queue, is tried again as long as
// something else could.
void Endpoint::DeliverPool() {
  std::vector<Arrival> ready;
  std::vector<Arrival> held;
  for (Arrival& arrival : pool) {
    if (arrival.hold > 0) {
      --arrival.hold;
      held.push_back(std::move(arrival));
    } else {
      ready.push_back(std::move(arrival));
    }
  }
  pool = std::move(held);
  std::shuffle(ready.begin(), ready.end(), domain->fabric->random);
  for (size_t before = 0; before != ready.size();) {
    before = ready.size();
    std::vector<Arrival> blocked;
    for (Arrival& arrival : ready) {
      if (arrival.hold > 0 || !Deliver(arrival))
        blocked.push_back(std::move(arrival));
    }
    ready = std::move(blocked);
  }
  for (Arrival& arrival : ready) pool.push_back(std::move(arrival));
}

bool Endpoint::Deliver(Arrival& arrival) {
  const Header& header = arrival.packet.header;
  switch (header.kind) {
    case Kind::kDone:
      if (!tx_cq->HasRoom()) return false;
      Complete(header.operation, header.outcome, arrival.packet.payload);
      return true;
    case Kind::kWrite:
      return DeliverWrite(arrival);
    case Kind::kRead:
      DeliverRead(arrival);
      return true;
    default:
      return DeliverMessage(arrival);
  }
}

bool Endpoint::DeliverMessage(Arrival& arrival) {
  const Header& header = arrival.packet.header;
  uint64_t& next = delivered[header.source];
  if (ordered && header.sequence != next) return false;
  if (!rx_cq->HasRoom()) return false;
  ++next;
  if (Match(arrival)) return true;
  const Fabric& fabric = *domain->fabric;
  if (fabric.settings.receiver_not_ready == ReceiverNotReady::kError) {
    Reply(arrival, Outcome::kReceiverNotReady);
    return true;
  }
  // EFA's emulation buffers short messages, and they're sent then.
  if (fabric.flavour == Flavour::kEfa &&
      (header.flags & FI_DELIVERY_COMPLETE) == 0 &&
      header.bytes <= fabric.settings.eager_bytes) {
    Reply(arrival, Outcome::kOk);
    arrival.packet.header.flags |= kReplied;
  }
  unready.push_back(std::move(arrival));
  return true;
}

void Endpoint::MatchUnready() {
  receive_posted = false;
  if (!ordered)
    std::shuffle(unready.begin(), unready.end(), domain->fabric->random);
  std::vector<Arrival> waiting;
  for (Arrival& arrival : unready) {
    if (!rx_cq->HasRoom()) receive_posted = true;  // look again
    if (receive_posted || !Match(arrival))
      waiting.push_back(std::move(arrival));
  }
  unready = std::move(waiting);
}

bool Endpoint::Match(Arrival& arrival) {
  const Header& header = arrival.packet.header;
  const fi_addr_t source = av->IndexOf(header.source);
  const auto found = std::find_if(
      receives.begin(), receives.end(), [&](const PostedReceive& receive) {
        return receive.kind == header.kind &&
               ((receive.tag ^ header.tag) & ~receive.ignore) == 0 &&
               (receive.source == FI_ADDR_UNSPEC || receive.source == source);
      });
  if (found == receives.end()) return false;
  const PostedReceive receive = std::move(*found);
  receives.erase(found);
  Finish(receive, arrival);
  return true;
}

void Endpoint::Finish(const PostedReceive& receive, const Arrival& arrival) {
  const Header& header = arrival.packet.header;
  uint64_t capacity = 0;
  for (const Segment& segment : receive.segments) {
    if (segment.region != nullptr && segment.region->closed)
      Breach("a message arrives in a receive whose region was closed");
    capacity += segment.bytes;
  }
  const uint64_t stored = std::min<uint64_t>(capacity, header.bytes);
  Scatter(receive.segments, std::span(arrival.packet.payload).first(stored));
  if ((header.flags & kReplied) == 0) Reply(arrival, Outcome::kOk);
  const bool truncated = stored < header.bytes;
  if (receive.silent && !truncated) {
    if (domain->fabric->flavour == Flavour::kEfaDirect)
      domain->fabric->contexts.Return(receive.context);
    return;
  }
  rx_cq->Push({.context = receive.context,
               .flags = FI_RECV |
                        (header.kind == Kind::kTagged ? FI_TAGGED : FI_MSG) |
                        (header.flags & FI_REMOTE_CQ_DATA),
               .bytes = stored,
               .data = header.data,
               .tag = header.tag,
               .source = av->IndexOf(header.source),
               .error = truncated ? FI_ETRUNC : 0,
               .outcome = truncated ? Outcome::kTruncated : Outcome::kOk,
               .excess_bytes = header.bytes - stored});
}

bool Endpoint::DeliverWrite(Arrival& arrival) {
  const Header& header = arrival.packet.header;
  const bool immediate = (header.flags & FI_REMOTE_CQ_DATA) != 0;
  if (immediate && !rx_cq->HasRoom()) return false;
  const fi_addr_t source = av->IndexOf(header.source);
  Target target = RemoteTarget({*domain, &fid, FI_REMOTE_WRITE, header.address,
                                arrival.packet.payload.size(), header.key});
  if (domain->fabric->flavour == Flavour::kEfaDirect &&
      source == FI_ADDR_NOTAVAIL)
    target.outcome = Outcome::kUnknownInitiator;
  if (target.outcome == Outcome::kOk && !arrival.torn &&
      header.payload > kWholeBytes) {
    Tear(*target.region, arrival);
    return false;
  }
  Reply(arrival, target.outcome);
  if (target.outcome != Outcome::kOk) return true;
  if (target.region != nullptr) {
    Store(*target.region, reinterpret_cast<std::byte*>(header.address),
          arrival.packet.payload);
  }
  if (immediate) {
    rx_cq->Push({.flags = FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA,
                 .bytes = header.bytes,
                 .data = header.data,
                 .source = source});
  }
  return true;
}

// Stores the second half alone, for who polls memory in place of his queue.
void Endpoint::Tear(Region& region, Arrival& arrival) {
  const size_t half = arrival.packet.payload.size() / 2;
  Store(region,
        reinterpret_cast<std::byte*>(arrival.packet.header.address) + half,
        std::span(arrival.packet.payload).subspan(half));
  arrival.torn = true;
  arrival.hold = 1;
}

void Endpoint::DeliverRead(Arrival& arrival) {
  const Header& header = arrival.packet.header;
  Target target = RemoteTarget({*domain, &fid, FI_REMOTE_READ, header.address,
                                header.bytes, header.key});
  if (domain->fabric->flavour == Flavour::kEfaDirect &&
      av->IndexOf(header.source) == FI_ADDR_NOTAVAIL)
    target.outcome = Outcome::kUnknownInitiator;
  if (target.outcome != Outcome::kOk || target.region == nullptr)
    return Reply(arrival, target.outcome);
  if (domain->endpoints.contains(header.source)) Fence(*target.region);
  const auto* from = reinterpret_cast<const std::byte*>(header.address);
  Reply(arrival, Outcome::kOk, Bytes(from, from + header.bytes));
}

void Endpoint::Reply(const Arrival& to, Outcome outcome, const Bytes& payload) {
  links.Reply(to.link,
              {.kind = Kind::kDone,
               .outcome = outcome,
               .source = address,
               .operation = to.packet.header.operation},
              payload);
}

}  // namespace trnccl::manners
