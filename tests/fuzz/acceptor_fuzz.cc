// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The Acceptor, as a stranger's or a rank's stream of bytes reaches it, piece
// by piece. Who doesn't know the secret never gets in; a rank that comes after
// does.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "ccl/base/check.h"
#include "ccl/bootstrap/acceptor.h"
#include "ccl/bootstrap/wire.h"
#include "tests/fuzz/input.h"

namespace trnccl {
namespace {

constexpr Secret kSecret = {42};
const Patience kAtOnce = {Deadline::After(0)};

// A listener of this process: streams of the machine take no ports.
class Listener {
 public:
  Listener() : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un any = {.sun_family = AF_UNIX};
    TRNCCL_CHECK(bind(fd_, reinterpret_cast<sockaddr*>(&any),
                      sizeof(any.sun_family)) == 0);
    TRNCCL_CHECK(listen(fd_, 8) == 0);
    TRNCCL_CHECK(getsockname(fd_, reinterpret_cast<sockaddr*>(&address_),
                             &address_bytes_) == 0);
  }

  Socket Share() const { return Socket(dup(fd_), "the listener"); }
  Socket Connect() const {
    Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), "it");
    TRNCCL_CHECK(connect(socket.fd(),
                         reinterpret_cast<const sockaddr*>(&address_),
                         address_bytes_) == 0);
    return socket;
  }

 private:
  int fd_;
  sockaddr_un address_ = {};
  socklen_t address_bytes_ = sizeof(address_);
};

std::vector<Guest> Progress(Acceptor& acceptor) {
  absl::StatusOr<std::vector<Guest>> guests = acceptor.Progress();
  TRNCCL_CHECK(guests.ok());
  return *std::move(guests);
}

// A rank's part, up to its hello.
void Prove(Acceptor& acceptor, const Socket& socket) {
  const ClientHandshake client = *ClientHandshake::Start(kSecret);
  TRNCCL_CHECK(SendAll(socket, client.Opening(), kAtOnce).ok());
  TRNCCL_CHECK(Progress(acceptor).empty());
  std::string challenge(kChallengeBytes, '\0');
  TRNCCL_CHECK(
      ReceiveAll(socket, challenge.data(), challenge.size(), kAtOnce).ok());
  TRNCCL_CHECK(SendAll(socket, *client.Prove(challenge), kAtOnce).ok());
}

}  // namespace
}  // namespace trnccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  static const Listener& listener = *new Listener;
  std::vector<Socket> listeners;
  listeners.push_back(listener.Share());
  Acceptor acceptor(std::move(listeners), kSecret);
  fuzz::Input input(data, size);
  const bool knows_secret = input.Take<uint8_t>() % 2 == 1;
  size_t guests = 0;
  {
    const Socket stranger = listener.Connect();
    if (knows_secret) Prove(acceptor, stranger);
    while (!input.empty()) {
      // Who was dropped can't be told any more.
      SendAll(stranger, input.TakePiece(), kAtOnce).IgnoreError();
      guests += Progress(acceptor).size();
    }
  }
  guests += Progress(acceptor).size();
  TRNCCL_CHECK(guests <= (knows_secret ? 1 : 0));
  std::vector<pollfd> fds;
  acceptor.AppendPollFds(&fds);
  TRNCCL_CHECK(fds.size() == 1);
  const Socket rank = listener.Connect();
  Prove(acceptor, rank);
  TRNCCL_CHECK(SendFrame(rank, "hello", kAtOnce).ok());
  TRNCCL_CHECK(Progress(acceptor).size() == 1);
  return 0;
}
