// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/health/health.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ccl/base/clock.h"

namespace trnccl {
namespace {

constexpr size_t kMaxTextBytes = 2048;

enum class Kind : uint32_t {
  kWaiting = 1,
  kFailed = 2,
  kRefused = 3,
  kLeft = 4
};

// In the envelope:
//   word 0  cookie, kind
//   word 1  kFailed: origin, sequence; kRefused: times, sequence; kLeft:
//           sequence
//   word 2  kFailed: the status code
// The payload is the text of the cause or refusal, or the envelopes of calls.
Envelope Seal(uint32_t cookie, Kind kind) {
  return {{uint64_t{cookie} << 32 | static_cast<uint64_t>(kind), 0, 0}};
}

// Of a payload that's too long, its beginning.
bool Send(Transport* transport, LinkId link, const Envelope& envelope,
          std::string_view payload) {
  payload = payload.substr(
      0, std::min(kMaxTextBytes, transport->traits().slice_bytes));
  std::byte* slice = transport->Reserve({&link, 1}, payload.size());
  if (slice == nullptr) {
    // A machine without memory for slices can still say what fits inline.
    payload = payload.substr(0, transport->traits().inline_bytes);
    slice = transport->Reserve({&link, 1}, payload.size());
  }
  if (slice == nullptr) return false;
  std::memcpy(slice, payload.data(), payload.size());
  return transport->Send({&link, 1},
                         {.envelope = envelope, .bytes = payload.size()});
}

// Of what a peer sent: a failure is never a success.
absl::StatusCode CodeOf(uint64_t value) {
  constexpr auto kLast =
      static_cast<uint64_t>(absl::StatusCode::kUnauthenticated);
  return value == 0 || value > kLast ? absl::StatusCode::kUnknown
                                     : static_cast<absl::StatusCode>(value);
}

std::string_view PayloadOf(const Incoming& message) {
  return {reinterpret_cast<const char*>(message.data),
          std::min(message.bytes, kMaxTextBytes)};
}

std::string_view BytesOf(const Envelope& call) {
  return {reinterpret_cast<const char*>(&call), sizeof(call)};
}

}  // namespace

Health::Health(const Options& options)
    : cookie_(options.cookie),
      peers_(static_cast<size_t>(options.membership.ranks)) {
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const Route& route = (*options.routes)[rank];
    if (route.transport == nullptr) continue;
    peers_[rank].transport = route.transport;
    peers_[rank].link = route.Link(options.lane);
    peers_[rank].hints = route.Link(options.lane + 1);
  }
}

void Health::Tell(const Notice& notice) {
  Envelope envelope = Seal(cookie_, Kind::kFailed);
  const Notice& first = notice_.has_value() ? *notice_ : notice;
  envelope.words[1] =
      static_cast<uint64_t>(first.origin) << 32 | notice.sequence;
  envelope.words[2] = static_cast<uint64_t>(first.cause.code());
  const std::string text(first.cause.message());
  for (Peer& peer : peers_) {
    if (peer.transport == nullptr || peer.told) continue;
    peer.told = Send(peer.transport, peer.link, envelope, text);
  }
}

void Health::SayWaiting(const Envelope& call) {
  SayOwed();
  for (const Peer& peer : peers_) {
    if (peer.transport == nullptr || peer.transport->Pending(peer.hints) > 0)
      continue;
    // There's room, and nothing is lost but a hint if there isn't.
    static_cast<void>(Send(peer.transport, peer.hints,
                           Seal(cookie_, Kind::kWaiting), BytesOf(call)));
  }
}

void Health::SayMade(const Envelope& call) {
  made_ = call;
  owes_ = true;
  for (Peer& peer : peers_) peer.owed = peer.transport != nullptr;
  SayOwed();
}

void Health::SayOwed() {
  if (!owes_) [[likely]]
    return;
  owes_ = false;
  for (Peer& peer : peers_) {
    if (!peer.owed) continue;
    peer.owed = !Send(peer.transport, peer.hints, Seal(cookie_, Kind::kWaiting),
                      BytesOf(made_));
    owes_ |= peer.owed;
  }
}

void Health::SayRefused(const Refusal& refusal) {
  Envelope envelope = Seal(cookie_, Kind::kRefused);
  envelope.words[1] =
      static_cast<uint64_t>(refusal.times) << 32 | refusal.sequence;
  SayToAll(&Peer::hints, envelope, refusal.text);
}

std::string Health::TextOf(const LastCalls& calls) {
  return {reinterpret_cast<const char*>(calls.data()), sizeof(calls)};
}

Health::LastCalls Health::LastCallsOf(std::string_view text) {
  LastCalls calls = {};
  const size_t whole = std::min(text.size() / sizeof(Envelope), calls.size());
  std::memcpy(calls.data(), text.data(), whole * sizeof(Envelope));
  return calls;
}

void Health::SayLeft(const Leaving& leaving) {
  Envelope envelope = Seal(cookie_, Kind::kLeft);
  envelope.words[1] = leaving.sequence;
  const std::string calls = TextOf(leaving.last_calls);
  for (const Peer& peer : peers_) {
    if (peer.transport == nullptr || peer.transport->traits().delivers)
      continue;
    static_cast<void>(Send(peer.transport, peer.link, envelope, calls));
  }
}

void Health::HearLeft(int rank, const Leaving& leaving) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.leaving.has_value()) return;
  anyone_left_ = true;
  peer.leaving = leaving;
  peer.leaving->heard_ns = NowNs();
}

void Health::SayToAll(LinkId Peer::*link, const Envelope& envelope,
                      std::string_view payload) {
  for (const Peer& peer : peers_) {
    if (peer.transport == nullptr) continue;
    // Whoever hasn't read what was said before learns of it by his deadline.
    static_cast<void>(Send(peer.transport, peer.*link, envelope, payload));
  }
}

void Health::Listen() {
  SayOwed();
  ListenTo(&Peer::hints);
  ListenTo(&Peer::link);
}

void Health::ListenForFailures() { ListenTo(&Peer::link); }

void Health::ListenTo(LinkId Peer::*link) {
  for (Peer& peer : peers_) {
    if (peer.transport == nullptr) continue;
    while (const Incoming* message =
               peer.transport->Peek(peer.*link, nullptr)) {
      Hear(peer, *message);
      peer.transport->Release(peer.*link);
    }
  }
}

void Health::Hear(Peer& peer, const Incoming& message) {
  const auto& words = message.envelope.words;
  const auto is = [&](Kind kind) {
    return words[0] == Seal(cookie_, kind).words[0];
  };
  const auto sequence = static_cast<uint32_t>(words[1]);
  if (is(Kind::kWaiting) && message.bytes == sizeof(Envelope)) {
    std::memcpy(&peer.waiting.emplace(), message.data, sizeof(Envelope));
    const auto made = static_cast<uint32_t>(peer.waiting->words[0]);
    if (peer.refusal.has_value() &&
        static_cast<int32_t>(made - peer.refusal->sequence) >= 0)
      peer.refusal.reset();
  } else if (is(Kind::kRefused)) {
    peer.refusal = {.sequence = sequence,
                    .times = static_cast<uint32_t>(words[1] >> 32),
                    .text = std::string(PayloadOf(message)),
                    .heard_ns = NowNs()};
  } else if (is(Kind::kLeft)) {
    anyone_left_ = true;
    peer.leaving = {.sequence = sequence,
                    .last_calls = LastCallsOf(PayloadOf(message)),
                    .heard_ns = NowNs()};
  } else {
    HearFailure(peer, message);
  }
}

void Health::HearFailure(Peer& peer, const Incoming& message) {
  const auto& words = message.envelope.words;
  const auto sequence = static_cast<uint32_t>(words[1]);
  peer.failed = true;
  if (notice_.has_value()) {
    if (static_cast<int32_t>(sequence - notice_->sequence) < 0)
      notice_->sequence = sequence;
    return;
  }
  const auto sender = static_cast<int>(&peer - peers_.data());
  if (words[0] != Seal(cookie_, Kind::kFailed).words[0]) {
    notice_ = {.origin = sender,
               .cause = absl::InternalError(
                   "a message that isn't of this communicator")};
    return;
  }
  const uint64_t origin = words[1] >> 32;
  notice_ = {
      .origin = origin < peers_.size() ? static_cast<int>(origin) : sender,
      .sequence = sequence,
      .cause = absl::Status(CodeOf(words[2]), std::string(PayloadOf(message)))};
}

const Envelope* Health::WaitingIn(int rank) const {
  const auto& waiting = peers_[static_cast<size_t>(rank)].waiting;
  return waiting.has_value() ? &*waiting : nullptr;
}

const Health::Refusal* Health::RefusedBy(int rank) const {
  const auto& refusal = peers_[static_cast<size_t>(rank)].refusal;
  return refusal.has_value() ? &*refusal : nullptr;
}

const Health::Leaving* Health::LeftBy(int rank) const {
  const auto& leaving = peers_[static_cast<size_t>(rank)].leaving;
  return leaving.has_value() ? &*leaving : nullptr;
}

std::vector<int> Health::Silent() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < peers_.size(); ++rank)
    if (peers_[rank].transport != nullptr && !peers_[rank].failed &&
        !peers_[rank].leaving.has_value())
      ranks.push_back(static_cast<int>(rank));
  return ranks;
}

}  // namespace trnccl
