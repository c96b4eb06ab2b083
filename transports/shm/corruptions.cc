// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/corruptions.h"

#include <cstring>

#include "transports/shared_memory.h"
#include "transports/shm/control.h"
#include "transports/shm/shm_transport.h"

namespace trnccl::shm {
namespace {

// The first message of a link whose numbers begin at zero.
Descriptor& First(Transport& sender, LinkId link) {
  return static_cast<ShmTransport&>(sender).control().ring(link.index)[0];
}

void SetWord(Descriptor& descriptor, MessageWord word) {
  descriptor.head = uint64_t{word.Pack()} << 32;
}

template <typename T>
void SetPayload(Descriptor& descriptor, const T& value) {
  std::memcpy(descriptor.payload.data(), &value, sizeof(value));
}

auto WithWord(MessageWord word) {
  return [word](Transport& sender, LinkId link) {
    SetWord(First(sender, link), word);
  };
}

auto WithReference(const SharedPiece& piece) {
  return [piece](Transport& sender, LinkId link) {
    Descriptor& descriptor = First(sender, link);
    SetPayload(descriptor, piece);
    SetWord(descriptor, {.kind = MessageKind::kReference, .bytes = 4096});
  };
}

}  // namespace

std::vector<std::function<void(Transport&, LinkId)>> Corruptions() {
  return {
      WithWord({.kind = MessageKind::kInline, .bytes = kInlineBytes + 1}),
      WithWord({.kind = MessageKind::kArena, .bytes = (1 << 28) - 1}),
      WithWord({.kind = MessageKind::kReference, .bytes = (1 << 28) - 1}),
      WithWord({.kind = static_cast<MessageKind>(9), .bytes = 8}),
      [](Transport& sender, LinkId link) {
        Descriptor& descriptor = First(sender, link);
        SetPayload(descriptor, UINT64_MAX - 4);
        SetWord(descriptor, {.kind = MessageKind::kArena, .bytes = 8});
      },
      WithReference({}),
      WithReference({.memory = {.pid = 1, .fd = 0, .inode = 5, .bytes = 8192},
                     .offset = 0}),
      WithReference({.memory = {.pid = -1, .fd = -1, .inode = 0, .bytes = 4096},
                     .offset = 0}),
      WithReference(
          {.memory = {.pid = 1, .fd = 0, .inode = 5, .bytes = UINT64_MAX},
           .offset = UINT64_MAX}),
  };
}

}  // namespace trnccl::shm
