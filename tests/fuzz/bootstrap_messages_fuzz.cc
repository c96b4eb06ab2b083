// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The bootstrap's messages, each by itself: what is taken is exactly what would
// be written, and a roster survives whoever joins.
#include <cstdint>
#include <string>
#include <variant>

#include "ccl/base/check.h"
#include "ccl/bootstrap/address.h"
#include "ccl/bootstrap/handshake.h"
#include "ccl/bootstrap/hello.h"
#include "ccl/bootstrap/roster.h"
#include "ccl/bootstrap/tree.h"
#include "ccl/bootstrap/unique_id.h"
#include "tests/fuzz/input.h"

namespace trnccl {
namespace {

constexpr Secret kSecret = {42};

void TakeHellos(fuzz::Input& input) {
  Roster roster(
      {.member = {.rank = 0, .ranks = 3}, .agreement = "version=1\n"});
  while (!input.empty()) {
    const std::string_view bytes = input.TakePiece();
    auto hello = ParseHello(bytes);
    if (!hello) continue;
    TRNCCL_CHECK(SerializeHello(*hello) == bytes);
    if (auto* join = std::get_if<JoinHello>(&*hello)) {
      const int index = roster.Add(std::move(*join));
      TRNCCL_CHECK(!roster.at((index - 1) / 2).host.empty() || index > 0);
    }
  }
  static_cast<void>(roster.MissingText());
  TRNCCL_CHECK(!roster.Judgement().ok() || roster.arrived() <= 3);
}

void TakeHandshake(fuzz::Input& input) {
  ServerHandshake server = *ServerHandshake::Start(kSecret);
  static_cast<void>(server.Challenge(input.TakeBytes(kOpeningBytes)));
  const ClientHandshake client = *ClientHandshake::Start(kSecret);
  TRNCCL_CHECK(!client.Prove(input.TakeBytes(kChallengeBytes)).ok());
  TRNCCL_CHECK(!server.Verify(input.Rest()).ok());
}

void TakeAddress(std::string_view text) {
  const auto address = SocketAddress::Parse(text);
  if (!address) return;
  TRNCCL_CHECK(SocketAddress::Parse(address->ToString()) == address);
  sockaddr_storage storage;
  address->ToSockaddr(&storage);
}

}  // namespace
}  // namespace trnccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  fuzz::Input input(data, size);
  switch (input.Take<uint8_t>() % 6) {
    case 0:
      TakeHellos(input);
      break;
    case 1: {
      const std::string_view bytes = input.Rest();
      const auto reply = ParseReply(bytes);
      if (reply) TRNCCL_CHECK(SerializeReply(*reply) == bytes);
      break;
    }
    case 2: {
      const std::string_view bytes = input.Rest();
      const auto id = UniqueId::Parse(bytes);
      if (id.ok()) TRNCCL_CHECK(id->Serialize() == bytes);
      break;
    }
    case 3:
      TRNCCL_CHECK(!StatusOf({.kind = TreeFrame::Kind::kError,
                              .body = std::string(input.Rest())})
                        .ok());
      break;
    case 4:
      TakeHandshake(input);
      break;
    case 5:
      TakeAddress(input.Rest());
      break;
  }
  return 0;
}
