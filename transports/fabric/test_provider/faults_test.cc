// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Each fault that the test provider injects, once.
#include "gtest/gtest.h"
#include "transports/fabric/test_provider/harness.h"

namespace trnccl::manners {
namespace {

ssize_t Send(Side& from, Memory& memory, fi_addr_t to) {
  return fi_send(from.endpoint(), memory.data(), memory.size(),
                 memory.descriptor(), to, from.Context());
}

ssize_t Receive(Side& side, Memory& memory) {
  return fi_recv(side.endpoint(), memory.data(), memory.size(),
                 memory.descriptor(), FI_ADDR_UNSPEC, side.Context());
}

TEST(Faults, StrikeEachCallThatOpens) {
  const struct {
    const char* fault;
    const char* call;
    int error;
  } kCases[] = {
      {"getinfo", "getinfo", FI_ENODATA},
      {"fabric", "fabric", FI_ENODEV},
      {"domain", "domain", FI_ENODEV},
      {"cq", "cq", FI_ENOMEM},
      {"av", "av", FI_ENOMEM},
      {"endpoint", "endpoint", FI_EINVAL},
      {"bind:2", "bind", FI_EINVAL},
      {"enable", "enable", FI_ENOMEM},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.fault);
    Setting fail("MANNERS_FAIL", test.fault);
    Side side({});
    EXPECT_EQ(side.failed(), test.call);
    EXPECT_EQ(side.error(), test.error);
  }
  EXPECT_EQ(Side({}).failed(), "");
}

TEST(Faults, StrikeTheCallThatIsCounted) {
  Setting fail("MANNERS_FAIL", "mr:2,mr:4+");
  Side side({});
  std::byte memory[8] = {};
  std::vector<int> results;
  for (int i = 0; i < 5; ++i) {
    fid_mr* region = nullptr;
    results.push_back(fi_mr_reg(side.domain(), memory, 8, FI_SEND, 0, 0, 0,
                                &region, nullptr));
    if (region != nullptr) fi_close(&region->fid);
  }
  EXPECT_EQ(results,
            (std::vector<int>{0, -FI_ENOMEM, 0, -FI_ENOMEM, -FI_ENOMEM}));
}

TEST(Faults, StrikeNamesAddressesAndPosts) {
  Setting fail("MANNERS_FAIL", "getname:1,av_insert:1,post:1");
  Side a({}), b({});
  EXPECT_EQ(b.Name(), "");
  EXPECT_EQ(b.error(), FI_EADDRNOTAVAIL);
  EXPECT_EQ(a.Insert(b), FI_ADDR_NOTAVAIL);
  const fi_addr_t to_b = a.Insert(b);
  Memory* from = a.Register({});
  EXPECT_EQ(Send(a, *from, to_b), -FI_EIO);
  EXPECT_EQ(Send(a, *from, to_b), 0);
}

TEST(Faults, StrikeCompletions) {
  Setting fail("MANNERS_FAIL", "tx:2,rx:1");
  Side a({}), b({});
  const fi_addr_t to_b = a.Insert(b);
  Memory* from = a.Register({});
  Memory* to = b.Register({});
  std::vector<int> sent, received;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Receive(b, *to), 0);
    ASSERT_EQ(Send(a, *from, to_b), 0);
    const Event event = Next({&a, &b});
    sent.push_back(event.error);
    EXPECT_EQ(event.text,
              event.error == 0 ? "" : "manners: injected: Unresponsive remote");
    received.push_back(b.Read().value_or(Event{.error = -1}).error);
  }
  EXPECT_EQ(sent, (std::vector<int>{0, FI_EIO, 0}));
  EXPECT_EQ(received, (std::vector<int>{FI_EIO, 0, 0}));
}

TEST(Faults, KillThePeerOfAnOperation) {
  Setting fail("MANNERS_FAIL", "peer:3");
  Side a({}), b({}), c({});
  const fi_addr_t to_b = a.Insert(b), to_c = a.Insert(c);
  Memory* from = a.Register({.bytes = 10000});
  EXPECT_EQ(Send(a, *from, to_b), 0);
  EXPECT_EQ(Send(a, *from, to_c), 0);
  EXPECT_EQ(Send(a, *from, to_b), 0);
  EXPECT_EQ(Send(a, *from, to_b), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Next({&a, &b, &c}).error, FI_EIO);
  Memory* to = c.Register({.bytes = 10000});
  EXPECT_EQ(Receive(c, *to), 0);
  EXPECT_EQ(Next({&a, &b, &c}).error, 0);
}

TEST(Faults, TellSendersThatTheReceiverIsNotReady) {
  Setting rnr("MANNERS_RNR", "error");
  Side a({.fabric = "efa-direct"}), b({.fabric = "efa-direct"});
  const fi_addr_t to_b = a.Insert(b);
  Memory* from = a.Register({});
  Memory* to = b.Register({});
  ASSERT_EQ(Send(a, *from, to_b), 0);
  const Event event = Next({&a, &b});
  EXPECT_EQ(event.error, FI_ENORX);
  EXPECT_EQ(event.text, "manners: Receiver not ready: no receive is posted");
  ASSERT_EQ(Receive(b, *to), 0);
  ASSERT_EQ(Send(a, *from, to_b), 0);
  EXPECT_EQ(Next({&a, &b}).error, 0);
}

TEST(Faults, RefusePostsInStorms) {
  Setting storm("MANNERS_EAGAIN", "50");
  Side a({}), b({});
  const fi_addr_t to_b = a.Insert(b);
  Memory* to = b.Register({});
  int refused = 0;
  for (int i = 0; i < 200; ++i) refused += Receive(b, *to) == -FI_EAGAIN;
  for (int i = 0; i < 50; ++i)
    refused += fi_inject(a.endpoint(), "12345678", 8, to_b) == -FI_EAGAIN;
  EXPECT_GT(refused, 80);
  EXPECT_LT(refused, 170);
}

TEST(Faults, RefusePostsBeyondTheQueues) {
  Setting transmits("MANNERS_TX_SIZE", "3");
  Setting receives("MANNERS_RX_SIZE", "2");
  Side a({.fabric = "efa-direct"}), b({.fabric = "efa-direct"});
  EXPECT_EQ(a.info()->tx_attr->size, 3u);
  EXPECT_EQ(a.info()->rx_attr->size, 2u);
  const fi_addr_t to_b = a.Insert(b);
  Memory* from = a.Register({});
  Memory* to = b.Register({});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Send(a, *from, to_b), 0);
  EXPECT_EQ(Send(a, *from, to_b), -FI_EAGAIN);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Receive(b, *to), 0);
  EXPECT_EQ(Receive(b, *to), -FI_EAGAIN);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Next({&a, &b}).error, 0);
  EXPECT_EQ(Send(a, *from, to_b), 0);
}

TEST(Faults, LeaveArrivalsOutsideOfAFullQueue) {
  Setting size("MANNERS_CQ_SIZE", "2");
  Setting hold("MANNERS_HOLD", "0");
  Side a({}), b({});
  const fi_addr_t to_b = a.Insert(b);
  Memory* to = b.Register({});
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(Receive(b, *to), 0);
    ASSERT_EQ(fi_inject(a.endpoint(), "12345678", 8, to_b), 0);
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Next({&b}).bytes, 8u);
}

TEST(Faults, HoldCompletionsBack) {
  Setting slow("MANNERS_SLOW", "500");
  Side a({.wait = FI_WAIT_FD}), b({});
  const fi_addr_t to_b = a.Insert(b);
  Memory* from = a.Register({});
  Memory* to = b.Register({});
  ASSERT_EQ(Receive(b, *to), 0);
  ASSERT_EQ(Send(a, *from, to_b), 0);
  int reads = 0;
  while (!a.Read().has_value() && ++reads < 10000) b.Read();
  EXPECT_GE(reads, 500);
  EXPECT_LT(reads, 600);
}

}  // namespace
}  // namespace trnccl::manners
