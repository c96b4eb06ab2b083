// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Point-to-point, whose peer writes to its control and data lanes itself. No
// receive takes more than it has room for, and nothing beside it is touched.
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>

#include "ccl/base/check.h"
#include "ccl/point_to_point/message.h"
#include "ccl/point_to_point/test_world.h"
#include "tests/fuzz/input.h"

namespace trnccl {
namespace {

constexpr size_t kBufferBytes = 256;

struct Posted {
  GuardedBuffer buffer{kBufferBytes};
  Transfer transfer;
};

class HostilePeer {
 public:
  explicit HostilePeer(TestWorld& world) : world_(world) {}

  void Send(fuzz::Input& input) {
    const uint8_t form = input.Take<uint8_t>();
    Envelope envelope;
    if (form % 4 == 0) {
      envelope = input.Take<Envelope>();
    } else {
      MessageHeader header;
      header.kind = static_cast<MessageKind>(input.Take<uint8_t>());
      header.type = static_cast<DataType>(input.Take<uint8_t>() % kDataTypes);
      header.id = input.Take<uint8_t>();
      header.tag = input.Take<int8_t>();
      envelope = SealMessage(header, TestWorld::kCookie);
    }
    const LinkId link = world_.route(1, 0).Link(form / 4 % 2);
    const std::string_view payload = input.TakePiece();
    std::byte* slice = world_.transport(1).Reserve({&link, 1}, payload.size());
    if (slice == nullptr) return;
    std::memcpy(slice, payload.data(), payload.size());
    world_.transport(1).Send({&link, 1},
                             {.envelope = envelope, .bytes = payload.size()});
  }

 private:
  TestWorld& world_;
};

void Start(TestWorld& world, fuzz::Input& input, std::deque<Posted>& posted) {
  const uint8_t form = input.Take<uint8_t>();
  Posted& one = posted.emplace_back();
  const int64_t tag = input.Take<int8_t>();
  one.transfer = form % 2 == 0
                     ? SendOf(one.buffer, 1, tag < 0 ? 0 : tag)
                     : ReceiveInto(one.buffer, form % 4 == 1 ? 1 : kAnySource,
                                   tag < 0 ? kAnyTag : tag);
  one.transfer.type = static_cast<DataType>(form / 4 % kDataTypes);
  one.transfer.bytes =
      std::min<size_t>(input.Take<uint8_t>(), kBufferBytes) / 16 * 16;
  if (form % 2 == 0) one.transfer.bytes = kBufferBytes;
  world[0].Start(&one.transfer);
}

}  // namespace
}  // namespace trnccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  TestWorld world({.slice_bytes = 256});
  HostilePeer peer(world);
  std::deque<Posted> posted;
  fuzz::Input input(data, size);
  absl::Status status;
  while (!input.empty() && status.ok()) {
    if (input.Take<uint8_t>() % 3 == 0 && posted.size() < 16) {
      Start(world, input, posted);
    } else {
      peer.Send(input);
    }
    status = world[0].Advance().status();
    const LinkId links[] = {world.route(1, 0).Link(0),
                            world.route(1, 0).Link(1)};
    for (const LinkId link : links)
      while (world.transport(1).Peek(link, nullptr) != nullptr)
        world.transport(1).Release(link);
    for (const Posted& one : posted) {
      static_cast<void>(world[0].Describe(one.transfer));
      if (!one.transfer.done || !one.transfer.status.ok()) continue;
      TRNCCL_CHECK(one.transfer.received_bytes <= one.transfer.bytes);
    }
  }
  static_cast<void>(world[0].Leave());
  world[0].FailAll(absl::AbortedError("the end"));
  for (Posted& one : posted) {
    TRNCCL_CHECK(one.transfer.done);
    if (one.transfer.direction == Transfer::kSend)
      TRNCCL_CHECK(one.buffer.Untouched());
  }
  return 0;
}
