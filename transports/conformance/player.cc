// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/conformance/player.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace trnccl {
namespace {

uint64_t Mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9e3779b97f4a7c15;
  x ^= x >> 29;
  return x * 0xbf58476d1ce4e5b9;
}

}  // namespace

uint64_t Stream::Key(uint64_t number) const {
  const auto link = static_cast<uint64_t>((from * 64 + to) * 64 + lane);
  return Mix(link << 40 | number);
}

size_t Stream::Bytes(uint64_t number, const Traits& traits) const {
  const size_t slice = traits.slice_bytes;
  const std::array<size_t, 8> sizes = {
      0,    1,         8,     traits.inline_bytes, traits.inline_bytes + 1,
      1000, slice - 1, slice,
  };
  return std::min(sizes[Key(number) / 7 % sizes.size()], slice);
}

Envelope Stream::EnvelopeOf(uint64_t number) const {
  return {{Key(number), number, ~number}};
}

void Stream::Fill(uint64_t number, std::byte* data, size_t bytes) const {
  uint64_t word = Key(number);
  for (size_t i = 0; i < bytes; i += 8, word += 0x9e3779b97f4a7c15) {
    std::memcpy(data + i, &word, std::min<size_t>(8, bytes - i));
  }
}

std::string Stream::Check(uint64_t number, const Incoming& message,
                          const Traits& traits) const {
  const std::string name = absl::StrCat("message ", number, " from rank ", from,
                                        " to ", to, " on lane ", lane, ": ");
  if (message.envelope != EnvelopeOf(number)) {
    return absl::StrCat(name, "the envelope is that of number ",
                        message.envelope.words[1]);
  }
  if (message.bytes != Bytes(number, traits)) {
    return absl::StrCat(name, message.bytes, " bytes");
  }
  uint64_t word = Key(number);
  for (size_t i = 0; i < message.bytes; i += 8, word += 0x9e3779b97f4a7c15) {
    const size_t part = std::min<size_t>(8, message.bytes - i);
    if (std::memcmp(message.data + i, &word, part) != 0) {
      return absl::StrCat(name, "wrong data at byte ", i);
    }
  }
  return "";
}

Player::Player(const Subject& subject, Transport& transport,
               const Options& options)
    : transport_(transport), options_(options) {
  for (int peer = 0; peer < options.ranks; ++peer) {
    if (peer == options.rank) continue;
    const auto index = static_cast<size_t>(peer - (peer > options.rank));
    for (int lane = 0; lane < options.lanes; ++lane) {
      Link link;
      link.id = transport.Link(index, lane);
      link.out = {.from = options.rank, .to = peer, .lane = lane};
      link.in = {.from = peer, .to = options.rank, .lane = lane};
      link.memory = std::make_unique<SubjectMemory>(
          subject, transport.traits().slice_bytes);
      auto region =
          transport.Register(link.memory->data(), link.memory->bytes());
      if (region.ok()) link.region = *std::move(region);
      links_.push_back(std::move(link));
    }
  }
}

void Player::Send(Link& link) {
  const Traits& traits = transport_.traits();
  const size_t bytes = link.out.Bytes(link.sent, traits);
  Outgoing message = {.envelope = link.out.EnvelopeOf(link.sent),
                      .bytes = bytes};
  const bool by_reference = link.out.Key(link.sent) % 3 == 0;
  if (by_reference) {
    // Its memory is free again once the message before is released.
    if (transport_.Pending(link.id) > 0) return;
    link.out.Fill(link.sent, link.memory->data(), bytes);
    message.region = link.region.get();
    if (!transport_.Send({&link.id, 1}, message)) return;
  } else {
    std::byte* slice = transport_.Reserve({&link.id, 1}, bytes);
    if (slice == nullptr) return;
    link.out.Fill(link.sent, slice, bytes);
    transport_.Send({&link.id, 1}, message);
  }
  moved_ = true;
  ++link.sent;
}

void Player::Drain(Link& link) {
  if (link.drained || transport_.Pending(link.id) > 0) return;
  link.drained = true;
  ++done_;
}

std::string Player::Receive(Link& link) {
  const Incoming* message = transport_.Peek(link.id, nullptr);
  if (message == nullptr) return "";
  if (link.received == options_.messages) return "a message too many";
  std::string wrong =
      link.in.Check(link.received, *message, transport_.traits());
  if (transport_.Peek(link.id, nullptr) != message)
    return "the peeked message moved";
  transport_.Release(link.id);
  moved_ = true;
  if (++link.received == options_.messages) ++done_;
  return wrong;
}

std::string Player::Step(uint64_t random) {
  moved_ = false;
  Link& link = links_[random / 16 % links_.size()];
  if (random % 16 == 0) {
    const absl::Status status = transport_.Progress();
    return status.ok() ? "" : status.ToString();
  }
  if (random % 2 == 0) return Receive(link);
  if (link.sent < options_.messages) {
    Send(link);
  } else {
    Drain(link);
  }
  return "";
}

}  // namespace trnccl
