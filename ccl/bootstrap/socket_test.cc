// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/socket.h"

#include <fcntl.h>
#include <poll.h>

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Patience Soon(int delay_ms) { return {Deadline::After(delay_ms)}; }

const Patience kLong = Soon(60'000);

struct Pair {
  Socket client;
  Socket server;
};

Pair Connected(const char* address = "127.0.0.1:0") {
  Socket listener = Listen(*SocketAddress::Parse(address)).value();
  Pair pair;
  pair.client = Connect(listener.LocalAddress().value(), kLong).value();
  pollfd fd{listener.fd(), POLLIN, 0};
  while (!pair.server.is_open()) {
    PollSlice(&fd, 1, kLong);
    pair.server = Accept(listener).value();
  }
  return pair;
}

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(Socket, FramesArriveWholeAndInOrder) {
  for (const char* address : {"127.0.0.1:0", "[::1]:0"}) {
    const Pair pair = Connected(address);
    const std::string big(3 << 20, 'x');
    std::thread sender([&] {
      for (const std::string& text : {std::string("one"), std::string(), big}) {
        EXPECT_TRUE(SendFrame(pair.client, text, kLong).ok());
      }
    });
    EXPECT_EQ(ReceiveFrame(pair.server, 100, kLong).value(), "one");
    EXPECT_EQ(ReceiveFrame(pair.server, 100, kLong).value(), "");
    EXPECT_EQ(ReceiveFrame(pair.server, big.size(), kLong).value(), big);
    sender.join();
  }
}

TEST(Socket, OversizedFrameIsRefusedByItsLengthAlone) {
  const Pair pair = Connected();
  ASSERT_TRUE(SendAll(pair.client, "\xff\xff\xff\xff", kLong).ok());
  const auto frame = ReceiveFrame(pair.server, 1024, kLong);
  EXPECT_THAT(Message(frame.status()),
              AllOf(HasSubstr("127.0.0.1:"), HasSubstr("4294967295 bytes"),
                    HasSubstr("1024")));
}

TEST(Socket, DribblingPeerDoesNotOutlastTheDeadline) {
  const Pair pair = Connected();
  std::atomic<bool> stop = false;
  std::thread dribbler([&] {
    while (!stop) {
      SendAll(pair.client, "x", Soon(10)).IgnoreError();
      std::this_thread::yield();
    }
  });
  std::string bytes(size_t{64} << 20, '\0');
  const absl::Status status =
      ReceiveAll(pair.server, bytes.data(), bytes.size(), Soon(50));
  stop = true;
  dribbler.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST(Socket, PeerThatDoesNotReadDoesNotOutlastTheDeadline) {
  const Pair pair = Connected();
  const std::string bytes(64 << 20, 'x');
  EXPECT_TRUE(absl::IsDeadlineExceeded(SendAll(pair.client, bytes, Soon(50))));
}

TEST(Socket, AbortEndsAWait) {
  const Pair pair = Connected();
  std::atomic<bool> abort = false;
  std::thread aborter([&] { abort = true; });
  char byte;
  const Patience patience{Deadline::Never(), &abort};
  EXPECT_TRUE(absl::IsAborted(ReceiveAll(pair.server, &byte, 1, patience)));
  aborter.join();
}

TEST(Socket, EndOfThePeerIsAnErrorThatNamesIt) {
  Pair pair = Connected();
  const std::string client = pair.client.LocalAddress()->ToString();
  pair.client.Close();
  char byte;
  const absl::Status status = ReceiveAll(pair.server, &byte, 1, kLong);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(Message(status), HasSubstr(client));
}

TEST(Socket, RefusedConnectionNamesTheAddress) {
  SocketAddress address;
  {
    Socket listener = Listen(*SocketAddress::Parse("127.0.0.1:0")).value();
    address = listener.LocalAddress().value();
  }
  const absl::Status status = Connect(address, kLong).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr(address.ToString()), HasSubstr("refused")));
}

TEST(Socket, ClosesOnExec) {
  const Pair pair = Connected();
  for (const Socket* socket : {&pair.client, &pair.server}) {
    EXPECT_TRUE(fcntl(socket->fd(), F_GETFD) & FD_CLOEXEC);
    EXPECT_TRUE(fcntl(socket->fd(), F_GETFL) & O_NONBLOCK);
  }
}

}  // namespace
}  // namespace trnccl
