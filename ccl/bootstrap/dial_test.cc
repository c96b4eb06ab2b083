// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/dial.h"

#include <sys/socket.h>

#include <atomic>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const SocketAddress kHere = *SocketAddress::Parse("127.0.0.1:0");

Patience Minute() { return {Deadline::After(60'000)}; }

// Where nobody listens any more.
SocketAddress Deserted() {
  const Socket socket = Listen(kHere).value();
  return socket.LocalAddress().value();
}

TEST(Dial, TakesTheFirstAddressThatAnswers) {
  const Socket listener = Listen(kHere).value();
  const SocketAddress address = listener.LocalAddress().value();
  const auto socket =
      Dial({Deserted(), *SocketAddress::Parse("[::1]:1"), address}, Minute());
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_EQ(socket->peer(), address.ToString());
}

TEST(Dial, SaysWhatCameOfEachAddress) {
  const SocketAddress first = Deserted();
  const SocketAddress second = Deserted();
  const absl::Status status = Dial({first, second}, Minute()).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no server at"), HasSubstr(first.ToString()),
                    HasSubstr(second.ToString()), HasSubstr("refused"),
                    HasSubstr("TRNCCL_SOCKET_IFNAME")));
}

// A listener whose queue is full, which leaves who comes without an answer.
class Silent {
 public:
  Silent() : listener_(Listen(kHere).value()) {
    EXPECT_EQ(listen(listener_.fd(), 0), 0);
    for (int i = 0; i < 4; ++i) {
      queue_.push_back(StartConnect(address()).value());
    }
  }
  SocketAddress address() const { return listener_.LocalAddress().value(); }

 private:
  Socket listener_;
  std::vector<Socket> queue_;
};

TEST(Dial, OneThatDoesNotAnswerHoldsUpNoOther) {
  const Silent silent;
  const Socket listener = Listen(kHere).value();
  const SocketAddress address = listener.LocalAddress().value();
  const auto socket = Dial({silent.address(), address}, Minute());
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_EQ(socket->peer(), address.ToString());
}

TEST(Dial, NamesWhatDidNotAnswerAtTheDeadline) {
  const Silent silent;
  const absl::Status status =
      Dial({silent.address()}, {Deadline::After(50)}).status();
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(silent.address().ToString()), HasSubstr("no answer")));
}

TEST(Dial, GivesUpWhenAborted) {
  const Silent silent;
  const std::atomic<bool> abort = true;
  EXPECT_TRUE(absl::IsAborted(
      Dial({silent.address()}, {Deadline::After(60'000), &abort}).status()));
}

}  // namespace
}  // namespace trnccl
