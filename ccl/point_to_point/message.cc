// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/message.h"

#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace trnccl {
namespace {

// Words: cookie (32 bits), marker (16), kind (8), type (8); tag; id.
constexpr uint64_t kMarker = 0x5032;  // "P2"

absl::Status Broken(const std::string& cause) {
  return absl::UnavailableError(cause);
}

// Of the kinds that start a message.
absl::Status CheckMessage(const MessageHeader& header) {
  if (header.tag < 0) {
    return Broken(absl::StrCat("tag ", header.tag, " is negative"));
  }
  // Elements are powers of two: no division on the way of each message.
  if ((header.bytes & (ElementBytes(header.type) - 1)) != 0) {
    return Broken(absl::StrCat(
        header.bytes, " bytes are no whole number of ",
        absl::string_view(Name(header.type).data(), Name(header.type).size()),
        " elements"));
  }
  return absl::OkStatus();
}

}  // namespace

Envelope SealMessage(const MessageHeader& header, uint32_t cookie) {
  return {.words = {uint64_t{cookie} << 32 | kMarker << 16 |
                        uint64_t{static_cast<uint8_t>(header.kind)} << 8 |
                        static_cast<uint8_t>(header.type),
                    static_cast<uint64_t>(header.tag), header.id}};
}

absl::StatusOr<MessageHeader> OpenMessage(const Incoming& incoming,
                                          uint32_t cookie) {
  const auto& words = incoming.envelope.words;
  if (words[0] >> 16 != (uint64_t{cookie} << 16 | kMarker)) {
    return Broken(absl::StrCat("it belongs to another communicator (envelope ",
                               absl::Hex(words[0]), ", cookie ",
                               absl::Hex(cookie), ")"));
  }
  const uint8_t kind = words[0] >> 8 & 0xff;
  const uint8_t type = words[0] & 0xff;
  if (kind < static_cast<uint8_t>(MessageKind::kEager) ||
      kind > static_cast<uint8_t>(MessageKind::kMade)) {
    return Broken(absl::StrCat("kind ", kind, " is unknown"));
  }
  if (type >= kDataTypes) {
    return Broken(absl::StrCat("element type ", type, " is unknown"));
  }
  if (words[2] > UINT32_MAX) {
    return Broken(absl::StrCat("id ", words[2], " is out of range"));
  }
  MessageHeader header = {.kind = static_cast<MessageKind>(kind),
                          .type = static_cast<DataType>(type),
                          .id = static_cast<uint32_t>(words[2]),
                          .tag = static_cast<int64_t>(words[1]),
                          .bytes = incoming.bytes};
  const bool whole = header.kind == MessageKind::kEager;
  const bool readable = header.kind == MessageKind::kReadable;
  const bool refusal = header.kind == MessageKind::kDeclined ||
                       header.kind == MessageKind::kMade;
  if (refusal && (header.id > 1 || header.bytes > kMaxWhyBytes)) {
    return Broken(absl::StrCat("kind ", kind, " of direction ", header.id,
                               " carries ", header.bytes, " bytes"));
  }
  if (!whole && !refusal && header.kind != MessageKind::kData) {
    const size_t expected = readable ? kReadableBytes : kLengthBytes;
    if (incoming.bytes != expected) {
      return Broken(absl::StrCat("kind ", kind, " carries ", incoming.bytes,
                                 " bytes instead of ", expected));
    }
    std::memcpy(&header.bytes, incoming.data, kLengthBytes);
  }
  if (whole || readable || header.kind == MessageKind::kOffer) {
    const absl::Status status = CheckMessage(header);
    if (!status.ok()) return status;
  }
  return header;
}

std::string WhyOf(const Incoming& incoming) {
  return std::string(reinterpret_cast<const char*>(incoming.data),
                     incoming.bytes);
}

MemoryOffer OfferedMemory(const Incoming& incoming) {
  MemoryOffer offer;
  std::memcpy(&offer, incoming.data + kLengthBytes, sizeof(offer));
  return offer;
}

}  // namespace trnccl
