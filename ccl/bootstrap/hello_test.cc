// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/hello.h"

#include "gtest/gtest.h"

namespace trnccl {
namespace {

JoinHello Join() {
  return {.member = {.rank = 3, .ranks = 4},
          .remaining_ms = 1000,
          .host = "nodea",
          .agreement = "version=1\n",
          .addresses = {*SocketAddress::Parse("127.0.0.1:4000")}};
}

TEST(Hello, EveryKindReadsBack) {
  const auto join = std::get<JoinHello>(*ParseHello(SerializeHello(Join())));
  EXPECT_EQ(join.member.rank, 3);
  EXPECT_EQ(join.member.ranks, 4);
  EXPECT_EQ(join.remaining_ms, 1000);
  EXPECT_EQ(join.host, "nodea");
  EXPECT_EQ(join.agreement, "version=1\n");
  EXPECT_EQ(join.addresses, Join().addresses);
  const auto link = std::get<LinkHello>(
      *ParseHello(SerializeHello(LinkHello{5, 2, "b, pid 8"})));
  EXPECT_EQ(link.index, 5);
  EXPECT_EQ(link.rank, 2);
  const auto report = std::get<ReportHello>(
      *ParseHello(SerializeHello(ReportHello{2, "cannot reach"})));
  EXPECT_EQ(report.rank, 2);
  EXPECT_EQ(report.text, "cannot reach");
}

TEST(Hello, EveryTruncationAndExtensionIsRefused) {
  for (const Hello& hello : {Hello(Join()), Hello(LinkHello{5, 2, "b, pid 8"}),
                             Hello(ReportHello{2, "x"})}) {
    const std::string good = SerializeHello(hello);
    for (size_t bytes = 0; bytes < good.size(); ++bytes) {
      EXPECT_FALSE(ParseHello(good.substr(0, bytes)).has_value()) << bytes;
    }
    EXPECT_FALSE(ParseHello(good + "x").has_value());
  }
  EXPECT_FALSE(ParseHello("\x09").has_value());
}

TEST(Hello, ReplyReadsBackAndDamageIsRefused) {
  const JoinReply reply{.index = 4,
                        .parent_rank = 9,
                        .parent_host = "a, pid 7",
                        .parent_addresses = Join().addresses};
  const std::string good = SerializeReply(reply);
  EXPECT_EQ(ParseReply(good)->index, 4);
  EXPECT_EQ(ParseReply(good)->parent_rank, 9);
  EXPECT_EQ(ParseReply(good)->parent_addresses, reply.parent_addresses);
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(ParseReply(good.substr(0, bytes)).has_value()) << bytes;
  }
  JoinReply root = reply;
  root.index = 0;
  EXPECT_FALSE(ParseReply(SerializeReply(root)).has_value());
}

}  // namespace
}  // namespace trnccl
