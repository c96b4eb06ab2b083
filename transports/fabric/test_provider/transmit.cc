// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <cstring>

#include "transports/fabric/test_provider/breach.h"
#include "transports/fabric/test_provider/endpoint.h"

namespace trnccl::manners {
namespace {

constexpr uint64_t kMaxRmaBytes = uint64_t{1} << 30;

uint64_t TotalBytes(std::span<const iovec> buffers) {
  uint64_t total = 0;
  for (const iovec& buffer : buffers) total += buffer.iov_len;
  return total;
}

// Of what the buffers hold now.
uint64_t Checksum(std::span<const Segment> segments) {
  uint64_t sum = 0;
  for (const Segment& segment : segments) {
    const std::byte* from = segment.base;
    for (size_t left = segment.bytes; left > 0;) {
      uint64_t word = 0;
      const size_t part = std::min(left, sizeof(word));
      std::memcpy(&word, from, part);
      sum = (sum ^ word) * 0x9e3779b97f4a7c15;
      sum ^= sum >> 32;
      from += part;
      left -= part;
    }
  }
  return sum;
}

Bytes Gather(std::span<const iovec> buffers) {
  Bytes bytes;
  bytes.reserve(TotalBytes(buffers));
  for (const iovec& buffer : buffers) {
    const auto* base = static_cast<const std::byte*>(buffer.iov_base);
    bytes.insert(bytes.end(), base, base + buffer.iov_len);
  }
  return bytes;
}

uint64_t CompletionFlags(Kind kind) {
  switch (kind) {
    case Kind::kMessage:
      return FI_SEND | FI_MSG;
    case Kind::kTagged:
      return FI_SEND | FI_TAGGED;
    case Kind::kWrite:
      return FI_WRITE | FI_RMA;
    default:
      return FI_READ | FI_RMA;
  }
}

int ErrorOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return 0;
    case Outcome::kReceiverNotReady:
      return FI_ENORX;
    case Outcome::kUnresponsive:
      return FI_ECONNRESET;
    case Outcome::kClosedKey:
      return FI_EKEYREJECTED;
    case Outcome::kUnknownInitiator:
      return FI_EHOSTUNREACH;
    default:
      return FI_EIO;
  }
}

// What the initiator alone can have got wrong.
bool IsBreach(Outcome outcome) {
  return outcome == Outcome::kUnknownKey || outcome == Outcome::kOutOfRange ||
         outcome == Outcome::kNoAccess;
}

bool IsRma(Kind kind) { return kind == Kind::kWrite || kind == Kind::kRead; }

}  // namespace

std::vector<Segment> Endpoint::LocalSegments(const Post& post,
                                             uint64_t access) {
  std::vector<Segment> segments;
  for (size_t i = 0; i < post.buffers.size(); ++i) {
    segments.push_back(LocalSegment(
        {*domain, &fid, access, post.call}, post.buffers[i],
        post.descriptors == nullptr ? nullptr : post.descriptors[i]));
  }
  return segments;
}

void Endpoint::CheckPost(const Post& post) const {
  const uint64_t needed = IsRma(post.kind)             ? FI_RMA
                          : post.kind == Kind::kTagged ? FI_TAGGED
                                                       : FI_MSG;
  if ((caps & needed) == 0)
    Breach(post.call, " on an endpoint without that capability");
  const size_t limit = domain->fabric->settings.segments;
  if (post.buffers.size() > limit)
    Breach(post.call, " with ", post.buffers.size(), " buffers, iov_limit is ",
           limit);
}

void Endpoint::CheckTransmit(const Post& post) const {
  const Settings& settings = domain->fabric->settings;
  const uint64_t bytes = TotalBytes(post.buffers);
  if ((post.flags & FI_INJECT) != 0 && bytes > settings.inject_bytes)
    Breach(post.call, " injects ", bytes, " bytes, inject_size is ",
           settings.inject_bytes);
  const bool direct = domain->fabric->flavour == Flavour::kEfaDirect;
  const uint64_t limit = IsRma(post.kind) ? kMaxRmaBytes
                         : direct         ? settings.message_bytes
                                          : UINT64_MAX;
  if (bytes > limit)
    Breach(post.call, " of ", bytes, " bytes, at most ", limit, " may be");
  if ((post.flags & FI_REMOTE_CQ_DATA) != 0 && post.data > UINT32_MAX)
    Breach(post.call, " with immediate data over 4 bytes: ", post.data);
  if (IsRma(post.kind) &&
      (post.remote.size() != 1 || post.remote[0].len != bytes))
    Breach(post.call, " of ", bytes, " bytes to other than one remote range",
           " of that size");
}

// An -FI_EAGAIN storm.
bool Endpoint::Refused(CompletionQueue& cq) {
  Fabric& fabric = *domain->fabric;
  if (fabric.settings.eagain_percent == 0 ||
      fabric.Draw(100) >= fabric.settings.eagain_percent)
    return false;
  cq.refused = true;
  return true;
}

ssize_t Endpoint::Transmit(const Post& post) {
  if (!enabled) return -FI_EOPBADSTATE;
  Fabric& fabric = *domain->fabric;
  CheckPost(post);
  CheckTransmit(post);
  const bool inject = (post.flags & FI_INJECT) != 0;
  const uint64_t access = post.kind == Kind::kRead    ? FI_READ
                          : post.kind == Kind::kWrite ? FI_WRITE
                                                      : FI_SEND;
  std::vector<Segment> segments;
  if (!inject) segments = LocalSegments(post, access);
  const Address peer = av->At(post.peer);
  if (outstanding.size() >= fabric.settings.transmits || Refused(*tx_cq)) {
    Progress();
    return -FI_EAGAIN;
  }
  if (fabric.faults.Strikes(Fault::kPost)) return -FI_EIO;
  if (!post.quiet && fabric.flavour == Flavour::kEfaDirect)
    fabric.contexts.Take(post.context);
  const bool wanted =
      !post.quiet && (!selective_tx || (post.flags & FI_COMPLETION) != 0);
  const uint64_t checksum = post.kind == Kind::kRead ? 0 : Checksum(segments);
  const uint64_t id = ++last_operation;
  outstanding.emplace(
      id, Operation{.kind = post.kind,
                    .peer = peer,
                    .context = post.context,
                    .flags = wanted ? CompletionFlags(post.kind) : 0,
                    .segments = std::move(segments),
                    .checksum = checksum});
  if (fabric.faults.Strikes(Fault::kPeer)) {
    silenced.insert(peer);
    FailPeer(peer, Outcome::kInjected);
  }
  Launch(post, peer, id);
  Progress();
  return 0;
}

void Endpoint::Launch(const Post& post, const Address& peer, uint64_t id) {
  Header header = {
      .kind = post.kind,
      .source = address,
      .operation = id,
      .tag = post.tag,
      .data = post.data,
      .flags = post.flags & (FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE),
      .bytes = TotalBytes(post.buffers)};
  if (IsRma(post.kind)) {
    header.address = post.remote[0].addr;
    header.key = post.remote[0].key;
  } else {
    header.sequence = sent[peer]++;
  }
  if (silenced.contains(peer)) return FailPeer(peer, Outcome::kInjected);
  const Bytes payload =
      post.kind == Kind::kRead ? Bytes() : Gather(post.buffers);
  if (dead.contains(peer) || !links.Send(peer, header, payload))
    FailPeer(peer, Outcome::kUnresponsive);
}

void Endpoint::Complete(uint64_t id, Outcome outcome, const Bytes& payload) {
  const auto found = outstanding.find(id);
  if (found == outstanding.end()) return;  // failed with its peer before
  const Operation operation = std::move(found->second);
  outstanding.erase(found);
  for (const Segment& segment : operation.segments) {
    if (segment.region != nullptr && segment.region->closed)
      Breach("a region was closed before an operation on it had completed");
  }
  if (IsBreach(outcome))
    Breach("remote memory access refused: ", TextOf(outcome));
  if (operation.kind == Kind::kRead && outcome == Outcome::kOk)
    Scatter(operation.segments, payload);
  if (operation.kind != Kind::kRead &&
      Checksum(operation.segments) != operation.checksum)
    Breach("the buffer of an operation changed before its completion");
  if (operation.flags == 0 && outcome == Outcome::kOk) {
    if (operation.context != nullptr &&
        domain->fabric->flavour == Flavour::kEfaDirect)
      domain->fabric->contexts.Return(operation.context);
    return;
  }
  tx_cq->Push({.context = operation.context,
               .flags = CompletionFlags(operation.kind),
               .error = ErrorOf(outcome),
               .outcome = outcome});
}

ssize_t Endpoint::PostReceive(const Post& post) {
  if (!enabled) return -FI_EOPBADSTATE;
  Fabric& fabric = *domain->fabric;
  CheckPost(post);
  std::vector<Segment> segments = LocalSegments(post, FI_RECV);
  if (receives.size() >= fabric.settings.receives || Refused(*rx_cq)) {
    Progress();
    return -FI_EAGAIN;
  }
  if (fabric.faults.Strikes(Fault::kPost)) return -FI_EIO;
  if (fabric.flavour == Flavour::kEfaDirect) fabric.contexts.Take(post.context);
  receives.push_back(
      {.kind = post.kind,
       .context = post.context,
       .silent = selective_rx && (post.flags & FI_COMPLETION) == 0,
       .segments = std::move(segments),
       .tag = post.tag,
       .ignore = post.ignore,
       .source = (caps & FI_DIRECTED_RECV) != 0 ? post.peer : FI_ADDR_UNSPEC});
  receive_posted = true;
  Progress();
  return 0;
}

}  // namespace trnccl::manners
