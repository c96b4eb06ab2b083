// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a peer says of failures and waits. A failure is never taken for a
// success, and the rank that's blamed is one of the communicator's.
#include <cstdint>
#include <cstring>

#include "ccl/base/check.h"
#include "ccl/health/health.h"
#include "ccl/point_to_point/test_world.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  constexpr int kRanks = 2;
  constexpr uint32_t kCookie = 0xbeef;
  static TestWorld& world = *new TestWorld({.ranks = kRanks});
  static const Routes& routes =
      *new Routes{world.route(0, 0), world.route(0, 1)};
  fuzz::Input input(data, size);
  Health health({.membership = {.rank = 0, .ranks = kRanks},
                 .routes = &routes,
                 .cookie = kCookie});
  Transport& peer = world.transport(1);
  const LinkId link = world.route(1, 0).Link(0);
  while (!input.empty()) {
    Envelope envelope;
    if (input.Take<uint8_t>() % 2 == 1)
      envelope.words[0] = uint64_t{kCookie} << 32 | input.Take<uint8_t>();
    else
      envelope.words[0] = input.Take<uint64_t>();
    envelope.words[1] = input.Take<uint64_t>();
    envelope.words[2] = input.Take<uint64_t>();
    const std::string_view payload = input.TakePiece();
    std::byte* slice = peer.Reserve({&link, 1}, payload.size());
    TRNCCL_CHECK(slice != nullptr);
    std::memcpy(slice, payload.data(), payload.size());
    peer.Send({&link, 1}, {.envelope = envelope, .bytes = payload.size()});
    health.Listen();
    static_cast<void>(health.WaitingIn(1));
    if (const Health::Notice* notice = health.notice()) {
      TRNCCL_CHECK(!notice->cause.ok());
      TRNCCL_CHECK(notice->origin >= 0 && notice->origin < kRanks);
    }
  }
  return 0;
}
