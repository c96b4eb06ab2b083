// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/acceptor.h"

#include <poll.h>
#include <sys/resource.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Secret kSecret = {42};
const Patience kLong = {Deadline::After(60'000)};

class AcceptorOnLoopback : public ::testing::Test {
 protected:
  AcceptorOnLoopback() { Open({}); }

  void Open(const Acceptor::Limits& limits) {
    std::vector<Socket> listeners;
    listeners.push_back(Listen(*SocketAddress::Parse("127.0.0.1:0")).value());
    address_ = listeners[0].LocalAddress().value();
    acceptor_ =
        std::make_unique<Acceptor>(std::move(listeners), kSecret, limits);
  }

  Socket Stranger(std::string_view bytes) {
    Socket socket = Connect(address_, kLong).value();
    EXPECT_TRUE(SendAll(socket, bytes, kLong).ok());
    return socket;
  }

  void Step(std::vector<Guest>* guests) {
    std::vector<pollfd> fds;
    acceptor_->AppendPollFds(&fds);
    PollSlice(fds.data(), fds.size(), kLong);
    absl::StatusOr<std::vector<Guest>> came = acceptor_->Progress();
    ASSERT_TRUE(came.ok()) << came.status();
    for (Guest& guest : *came) guests->push_back(std::move(guest));
  }

  // Serves until the other side has closed `socket`.
  void ServeUntilDropped(const Socket& socket) {
    std::vector<Guest> guests;
    char bytes[256];
    while (ReceiveSome(socket, bytes, sizeof(bytes)).ok()) Step(&guests);
    EXPECT_THAT(guests, IsEmpty());
  }

  // Serves while `body` runs on a thread of its own; no one may get in.
  void ServeWhile(const std::function<void()>& body) {
    std::atomic<bool> done = false;
    std::thread other([&] {
      body();
      done = true;
    });
    std::vector<Guest> guests;
    while (!done) Step(&guests);
    other.join();
    EXPECT_THAT(guests, IsEmpty());
  }

  // A rank that knows the secret gets in, whatever came before it.
  void ExpectServes() {
    std::thread rank([this] {
      const Socket socket = Visit({address_}, kSecret, kLong).value();
      EXPECT_TRUE(SendFrame(socket, "hello", kLong).ok());
    });
    std::vector<Guest> guests;
    while (guests.empty()) Step(&guests);
    rank.join();
    ASSERT_EQ(guests.size(), 1u);
    EXPECT_EQ(guests[0].hello, "hello");
  }

  SocketAddress address_;
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(AcceptorOnLoopback, LetsInWhoKnowsTheSecret) { ExpectServes(); }

TEST_F(AcceptorOnLoopback, DropsGarbageAndServesOn) {
  ServeUntilDropped(Stranger(std::string(1000, '\xff')));
  ServeUntilDropped(Stranger("GET / HTTP/1.1\r\nHost: example\r\n\r\n"));
  ExpectServes();
}

TEST_F(AcceptorOnLoopback, DropsAWrongSecretAndServesOn) {
  ServeWhile([this] {
    const absl::Status status = Visit({address_}, Secret{43}, kLong).status();
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(address_.ToString()), HasSubstr("secret")));
  });
  ExpectServes();
}

TEST_F(AcceptorOnLoopback, DropsAReplayedHandshakeAndServesOn) {
  // A real rank's side of the talk, as a listener on the wire would have it.
  const ClientHandshake client = ClientHandshake::Start(kSecret).value();
  ServerHandshake server = ServerHandshake::Start(kSecret).value();
  const std::string proof =
      client.Prove(server.Challenge(client.Opening()).value()).value();
  ServeUntilDropped(Stranger(client.Opening() + proof + "\5\0\0\0hello"));
  ExpectServes();
}

TEST_F(AcceptorOnLoopback, DropsAnOversizedHelloAndServesOn) {
  Socket socket;
  ServeWhile([this, &socket] {
    socket = Visit({address_}, kSecret, kLong).value();
    EXPECT_TRUE(SendAll(socket, "\xff\xff\xff\x7f", kLong).ok());
  });
  ServeUntilDropped(socket);
  ExpectServes();
}

TEST_F(AcceptorOnLoopback, ServesPastDribblersAndTheSilent) {
  std::vector<Socket> strangers;
  for (int i = 0; i < 20; ++i) strangers.push_back(Stranger("T"));
  for (int i = 0; i < 20; ++i) strangers.push_back(Stranger(""));
  ExpectServes();
  for (const Socket& stranger : strangers) {
    EXPECT_TRUE(SendAll(stranger, "R", kLong).ok());
  }
  ExpectServes();
}

TEST_F(AcceptorOnLoopback, DropsAReflectedProofAndServesOn) {
  // Its own challenge comes back to it, as if it were a client's proof.
  const Socket mirror =
      Stranger(ClientHandshake::Start(kSecret).value().Opening());
  std::vector<Guest> guests;
  std::string challenge(kChallengeBytes, '\0');
  size_t bytes = 0;
  while (bytes < challenge.size()) {
    Step(&guests);
    bytes += ReceiveSome(mirror, &challenge[bytes], challenge.size() - bytes)
                 .value();
  }
  EXPECT_TRUE(SendAll(mirror, challenge.substr(kNonceBytes), kLong).ok());
  ServeUntilDropped(mirror);
  EXPECT_THAT(guests, IsEmpty());
  ExpectServes();
}

TEST_F(AcceptorOnLoopback, DropsTheSilentAfterABoundedTime) {
  Open({.visit_ms = 20});
  ServeUntilDropped(Stranger(""));
  ServeUntilDropped(Stranger("TRNCCL"));
  Open({});
  ExpectServes();
}

TEST_F(AcceptorOnLoopback, DropsWhoDribblesForeverAfterABoundedTime) {
  Open({.visit_ms = 500});
  // Knows the secret, and so may say much; says it byte by byte.
  Socket dribbler;
  ServeWhile([this, &dribbler] {
    dribbler = Visit({address_}, kSecret, kLong).value();
  });
  EXPECT_TRUE(SendAll(dribbler, std::string("\0\x40\0\0", 4), kLong).ok());
  std::vector<Guest> guests;
  char byte = 0;
  for (int said = 0; ReceiveSome(dribbler, &byte, 1).ok(); ++said) {
    // Never all of it, however fast this goes.
    if (said < 0x3000) SendAll(dribbler, "x", kLong).IgnoreError();
    Step(&guests);
  }
  EXPECT_THAT(guests, IsEmpty());
}

TEST_F(AcceptorOnLoopback, AFloodOfTheSilentKeepsNoRankWaiting) {
  std::vector<Socket> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(Stranger(""));
  ExpectServes();
  // It wasn't their time that had to pass.
  char byte = 0;
  for (const Socket& stranger : strangers) {
    EXPECT_TRUE(ReceiveSome(stranger, &byte, 1).ok());
  }
}

TEST_F(AcceptorOnLoopback, ACrowdOfTheSilentMakesRoom) {
  Open({.visitors = 4, .visit_ms = 60'000, .crowded_visit_ms = 10});
  std::vector<Socket> strangers;
  for (int i = 0; i < 40; ++i) strangers.push_back(Stranger("T"));
  ExpectServes();
}

// A rank that's slow is sent away from a crowd, and comes again.
TEST_F(AcceptorOnLoopback, AMemberThatIsSentAwayComesAgain) {
  const Socket listener = Listen(*SocketAddress::Parse("127.0.0.1:0")).value();
  const SocketAddress address = listener.LocalAddress().value();
  std::thread rank(
      [&address] { EXPECT_TRUE(Visit({address}, kSecret, kLong).ok()); });
  const auto accept = [&listener] {
    while (true) {
      Socket socket = Accept(listener).value();
      if (socket.is_open()) return socket;
    }
  };
  accept().Close();
  const Socket again = accept();
  ServerHandshake server = ServerHandshake::Start(kSecret).value();
  std::string opening(kOpeningBytes, '\0');
  ASSERT_TRUE(ReceiveAll(again, opening.data(), opening.size(), kLong).ok());
  const std::string challenge = server.Challenge(opening).value();
  EXPECT_TRUE(SendAll(again, challenge, kLong).ok());
  rank.join();
}

TEST_F(AcceptorOnLoopback, StrangersThatTakeAllDescriptorsAreNoError) {
  std::vector<Socket> strangers;
  for (int i = 0; i < 8; ++i) strangers.push_back(Stranger(""));
  std::vector<Guest> guests;
  Step(&guests);
  for (int i = 0; i < 8; ++i) strangers.push_back(Stranger(""));
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  Step(&guests);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(guests, IsEmpty());
  ExpectServes();
}

TEST_F(AcceptorOnLoopback, NoDescriptorsWithoutAnyStrangerIsAnError) {
  const Socket rank = Stranger("");
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const absl::Status status = acceptor_->Progress().status();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST(Visit, NoServerNamesAllAddressesTried) {
  std::vector<SocketAddress> addresses;
  for (int i = 0; i < 2; ++i) {
    const Socket listener =
        Listen(*SocketAddress::Parse("127.0.0.1:0")).value();
    addresses.push_back(listener.LocalAddress().value());
  }
  const absl::Status status = Visit(addresses, kSecret, kLong).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no server at"), HasSubstr("refused"),
                    HasSubstr(addresses[0].ToString()),
                    HasSubstr(addresses[1].ToString())));
}

TEST(Visit, ServerThatSaysNothingDoesNotOutlastTheDeadline) {
  const Socket listener = Listen(*SocketAddress::Parse("127.0.0.1:0")).value();
  const absl::Status status =
      Visit({listener.LocalAddress().value()}, kSecret, {Deadline::After(50)})
          .status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

}  // namespace
}  // namespace trnccl
