// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A rank that meets another one and exchanges with it, where that one knows the
// secret and follows the rules up to some point, and then sends anything. The
// rank comes back in time, with an error or with blobs for every rank.
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ccl/base/check.h"
#include "ccl/base/status_macros.h"
#include "ccl/bootstrap/acceptor.h"
#include "ccl/bootstrap/bootstrap.h"
#include "ccl/bootstrap/hello.h"
#include "ccl/bootstrap/unique_id.h"
#include "ccl/bootstrap/wire.h"
#include "tests/fuzz/input.h"

namespace trnccl {
namespace {

constexpr int kRanks = 2;
constexpr int kPatienceMs = 50;
constexpr int kLongMs = 20'000;

Patience Short() { return {Deadline::After(kPatienceMs)}; }

// How far the hostile rank follows the rules.
enum class Breach { kHello, kLink, kVerdict, kExchange };

struct Play {
  Breach breach = Breach::kHello;
  fuzz::Input* input = nullptr;
};

// Whole frames, and a last one that's cut short.
absl::Status SendAnything(const Socket& socket, fuzz::Input& input) {
  while (!input.empty()) {
    const std::string_view piece = input.TakePiece();
    if (input.empty()) return SendAll(socket, piece, Short());
    RETURN_IF_ERROR(SendFrame(socket, piece, Short()));
  }
  return absl::OkStatus();
}

// The hostile rank is the second to come.
absl::Status Attend(const UniqueId& id, const Play& play) {
  const std::vector<SocketAddress> own = {*SocketAddress::Parse("127.0.0.1:1")};
  ASSIGN_OR_RETURN(const Socket root, Visit(id.addresses, id.secret, Short()));
  if (play.breach == Breach::kHello) return SendAnything(root, *play.input);
  const JoinHello join{.member = {.rank = 1, .ranks = kRanks},
                       .remaining_ms = kPatienceMs,
                       .addresses = own};
  RETURN_IF_ERROR(SendFrame(root, SerializeHello(join), Short()));
  RETURN_IF_ERROR(ReceiveFrame(root, 2 << 10, Short()).status());
  ASSIGN_OR_RETURN(Socket parent, Visit(id.addresses, id.secret, Short()));
  const TreeLink link{0, "b", std::move(parent)};
  if (play.breach == Breach::kLink)
    return SendAnything(link.socket, *play.input);
  RETURN_IF_ERROR(
      SendFrame(link.socket, SerializeHello(LinkHello{1, 1, "a"}), Short()));
  if (play.breach == Breach::kExchange) {
    RETURN_IF_ERROR(SendFrameTo(link, {}, Short()));
    RETURN_IF_ERROR(ReceiveFrameFrom(link, Short()).status());
  }
  return SendAnything(link.socket, *play.input);
}

absl::StatusOr<Guest> Await(Acceptor& acceptor) {
  const Patience patience = Short();
  while (true) {
    ASSIGN_OR_RETURN(std::vector<Guest> guests, acceptor.Progress());
    if (!guests.empty()) return std::move(guests.front());
    RETURN_IF_ERROR(patience.Check());
    std::vector<pollfd> fds;
    acceptor.AppendPollFds(&fds);
    PollSlice(fds.data(), fds.size(), patience);
  }
}

// The hostile rank is the root.
absl::Status Serve(const UniqueId& id, std::vector<Socket> listeners,
                   const Play& play) {
  Acceptor acceptor(std::move(listeners), id.secret);
  ASSIGN_OR_RETURN(const Guest guest, Await(acceptor));
  if (play.breach == Breach::kHello)
    return SendAnything(guest.socket, *play.input);
  RETURN_IF_ERROR(SendFrame(
      guest.socket,
      SerializeReply(
          {.index = 1, .parent_rank = 0, .parent_addresses = id.addresses}),
      Short()));
  ASSIGN_OR_RETURN(Guest linked, Await(acceptor));
  const TreeLink child{1, "a", std::move(linked.socket)};
  if (play.breach == Breach::kExchange) {
    WireWriter verdict;
    verdict.U32(kRanks);
    RETURN_IF_ERROR(SendFrameTo(
        child, {.kind = TreeFrame::Kind::kDown, .body = verdict.bytes()},
        Short()));
  }
  return SendAnything(child.socket, *play.input);
}

// The honest rank.
absl::Status Meet(const UniqueId& id, int rank) {
  const Deadline deadline = Deadline::After(kPatienceMs);
  ASSIGN_OR_RETURN(const auto bootstrap,
                   Bootstrap::Connect(id, {.rank = rank, .ranks = kRanks},
                                      {.patience = {deadline}, .grace_ms = 1}));
  ASSIGN_OR_RETURN(const auto blobs, bootstrap->AllGather("x", deadline));
  TRNCCL_CHECK(blobs.size() == kRanks);
  return absl::OkStatus();
}

}  // namespace
}  // namespace trnccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  const Deadline bound = Deadline::After(kLongMs);
  fuzz::Input input(data, size);
  const uint8_t form = input.Take<uint8_t>();
  const Play play{.breach = static_cast<Breach>(form / 2 % 4), .input = &input};
  auto id = CreateUniqueId({"lo", SocketFamily::kIpv4});
  TRNCCL_CHECK(id.ok());
  const int honest = form % 2;
  std::vector<Socket> listeners;
  if (honest != 0) listeners = TakeListeners(*id);
  std::thread hostile([&] {
    // What becomes of it is its own affair.
    (honest == 0 ? Attend(*id, play) : Serve(*id, std::move(listeners), play))
        .IgnoreError();
  });
  static_cast<void>(Meet(*id, honest));
  hostile.join();
  TRNCCL_CHECK(!bound.expired());
  return 0;
}
