// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/outbound.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace trnccl {
namespace {

std::optional<MemoryOffer> OfferMemory(const Transfer& send,
                                       const ControlLink& to) {
  if (to.memory == nullptr) return std::nullopt;
  return to.memory->Offer({send.buffer, send.bytes},
                          send.bytes >= to.unmapped_min_bytes
                              ? Unmapped::kOffered
                              : Unmapped::kRefused);
}

}  // namespace

bool WriteMessage(Outbound* outbound, const ControlLink& to) {
  MessageHeader& header = outbound->header;
  const void* data = &header.bytes;
  size_t bytes = kLengthBytes;
  std::optional<MemoryOffer> memory;
  switch (header.kind) {
    case MessageKind::kEager:
      data = outbound->transfer->buffer;
      bytes = header.bytes;
      break;
    case MessageKind::kOffer:
      memory = OfferMemory(*outbound->transfer, to);
      if (!memory.has_value()) break;
      header.kind = MessageKind::kReadable;
      bytes = kReadableBytes;
      break;
    case MessageKind::kDeclined:
      data = outbound->why->data();
      bytes =
          std::min(outbound->why->size(),
                   std::min(kMaxWhyBytes, to.transport->traits().slice_bytes));
      break;
    case MessageKind::kMade:
      bytes = 0;
      break;
    default:
      break;
  }
  const LinkId links[] = {to.link};
  std::byte* slice = to.transport->Reserve(links, bytes);
  if (slice == nullptr) return false;
  const size_t plain_bytes = memory.has_value() ? kLengthBytes : bytes;
  if (plain_bytes > 0) std::memcpy(slice, data, plain_bytes);
  if (memory.has_value())
    std::memcpy(slice + kLengthBytes, &*memory, sizeof(*memory));
  return to.transport->Send(
      links, {.envelope = SealMessage(header, to.cookie), .bytes = bytes});
}

}  // namespace trnccl
