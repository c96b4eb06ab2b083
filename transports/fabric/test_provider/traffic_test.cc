// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What the test provider carries, and in which order.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "gtest/gtest.h"
#include "transports/fabric/test_provider/harness.h"

namespace trnccl::manners {
namespace {

class Fabrics : public testing::TestWithParam<const char*> {
 protected:
  Side a_{{.fabric = GetParam()}};
  Side b_{{.fabric = GetParam()}};
  const fi_addr_t to_b_ = a_.Insert(b_);
  const fi_addr_t to_a_ = b_.Insert(a_);
};

INSTANTIATE_TEST_SUITE_P(Manners, Fabrics, testing::Values("efa", "efa-direct"),
                         [](const auto& test) {
                           return test.index == 0 ? "Efa" : "EfaDirect";
                         });

ssize_t Send(Side& from, const Memory& memory, fi_addr_t to) {
  return fi_send(from.endpoint(), memory.bytes().data(), memory.size(),
                 memory.descriptor(), to, from.Context());
}

ssize_t Receive(Side& side, Memory& memory) {
  return fi_recv(side.endpoint(), memory.data(), memory.size(),
                 memory.descriptor(), FI_ADDR_UNSPEC, side.Context());
}

TEST_P(Fabrics, CarryMessagesWithTheirLengthAndSource) {
  for (size_t bytes : {0u, 1u, 63u, 8192u}) {
    Memory* from = a_.Register({.bytes = std::max<size_t>(bytes, 1)});
    Memory* to = b_.Register({.bytes = 8192, .salt = 9});
    ASSERT_EQ(Receive(b_, *to), 0);
    ASSERT_EQ(fi_send(a_.endpoint(), from->data(), bytes, from->descriptor(),
                      to_b_, a_.Context()),
              0);
    const Event received = Next({&b_, &a_});
    EXPECT_EQ(received.flags, FI_RECV | FI_MSG);
    EXPECT_EQ(received.bytes, bytes);
    EXPECT_EQ(received.source, to_a_);
    EXPECT_EQ(std::memcmp(to->data(), from->data(), bytes), 0);
  }
}

TEST_P(Fabrics, WriteWithImmediateDataOfFourBytes) {
  Memory* from = a_.Register({.bytes = 4 << 20, .salt = 1});
  Memory* to = b_.Register({.bytes = 4 << 20, .salt = 2});
  ASSERT_EQ(fi_writedata(a_.endpoint(), from->data(), from->size(),
                         from->descriptor(), 0xfedcba98, to_b_, to->address(),
                         to->key(), a_.Context()),
            0);
  const Event arrived = Next({&b_, &a_});
  EXPECT_EQ(arrived.flags, FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA);
  EXPECT_EQ(arrived.data, 0xfedcba98);
  EXPECT_EQ(arrived.bytes, from->size());
  EXPECT_EQ(to->bytes(), from->bytes());
  EXPECT_EQ(Next({&a_, &b_}).flags, FI_WRITE | FI_RMA);
}

TEST_P(Fabrics, LandLongWritesInParts) {
  Memory* from = a_.Register({.bytes = 128, .salt = 1});
  Memory* to = b_.Register({.bytes = 128, .salt = 2});
  const std::vector<std::byte> old = to->bytes();
  ASSERT_EQ(fi_write(a_.endpoint(), from->data(), 128, from->descriptor(),
                     to_b_, to->address(), to->key(), a_.Context()),
            0);
  for (int reads = 0; to->bytes() == old && reads < 100; ++reads) b_.Read();
  EXPECT_EQ(std::memcmp(to->data(), old.data(), 64), 0);
  EXPECT_EQ(std::memcmp(to->data() + 64, from->data() + 64, 64), 0);
  EXPECT_EQ(Next({&a_, &b_}).error, 0);
  EXPECT_EQ(to->bytes(), from->bytes());
}

TEST_P(Fabrics, ReadRemoteMemory) {
  Memory* from = b_.Register({.bytes = 100000, .salt = 3});
  Memory* to = a_.Register({.bytes = 100000, .salt = 4});
  ASSERT_EQ(fi_read(a_.endpoint(), to->data(), to->size(), to->descriptor(),
                    to_b_, from->address(), from->key(), a_.Context()),
            0);
  EXPECT_EQ(Next({&a_, &b_}).flags, FI_READ | FI_RMA);
  EXPECT_EQ(to->bytes(), from->bytes());
}

TEST_P(Fabrics, InjectCompletesSilentlyAndFreesTheBufferAtOnce) {
  Memory* to = b_.Register({.bytes = 32});
  ASSERT_EQ(Receive(b_, *to), 0);
  std::vector<char> text(32, 'x');
  ASSERT_EQ(fi_inject(a_.endpoint(), text.data(), text.size(), to_b_), 0);
  std::fill(text.begin(), text.end(), 'y');
  EXPECT_EQ(Next({&b_, &a_}).bytes, 32u);
  EXPECT_EQ(to->bytes(), std::vector<std::byte>(32, std::byte{'x'}));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(a_.Read().has_value());
}

TEST_P(Fabrics, KeepMessagesForReceiversThatAreNotReady) {
  Memory* from = a_.Register({.bytes = 1000, .salt = 5});
  Memory* to = b_.Register({.bytes = 1000, .salt = 6});
  ASSERT_EQ(Send(a_, *from, to_b_), 0);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(b_.Read().has_value());
  ASSERT_EQ(Receive(b_, *to), 0);
  EXPECT_EQ(Next({&b_, &a_}).bytes, 1000u);
  EXPECT_EQ(Next({&a_, &b_}).flags, FI_SEND | FI_MSG);
  EXPECT_EQ(to->bytes(), from->bytes());
}

// The order in which `count` numbered messages are received.
std::vector<int> Order(const char* fabric, const std::string& seed, int count) {
  Setting setting("MANNERS_SEED", seed);
  Side a({.fabric = fabric}), b({.fabric = fabric});
  const fi_addr_t to_b = a.Insert(b);
  std::vector<Memory*> from, to;
  std::vector<void*> contexts;
  for (int i = 0; i < count; ++i) {
    from.push_back(a.Register({.salt = static_cast<uint8_t>(i)}));
    to.push_back(b.Register({}));
    contexts.push_back(b.Context());
    EXPECT_EQ(fi_recv(b.endpoint(), to[i]->data(), 64, to[i]->descriptor(),
                      FI_ADDR_UNSPEC, contexts[i]),
              0);
  }
  for (const Memory* memory : from) EXPECT_EQ(Send(a, *memory, to_b), 0);
  std::vector<int> order;
  for (int i = 0; i < count; ++i) {
    const Event event = Next({&b, &a});
    const auto at = std::find(contexts.begin(), contexts.end(), event.context);
    const Memory& received = *to[at - contexts.begin()];
    for (int sent = 0; sent < count; ++sent) {
      if (received.bytes() == from[sent]->bytes()) order.push_back(sent);
    }
  }
  return order;
}

TEST(Order, IsThatOfSendsOnEfa) {
  std::vector<int> sent(32);
  std::iota(sent.begin(), sent.end(), 0);
  EXPECT_EQ(Order("efa", "1", 32), sent);
  EXPECT_EQ(Order("efa", "2", 32), sent);
}

TEST(Order, IsDrawnByTheSeedOnEfaDirect) {
  const std::vector<int> first = Order("efa-direct", "1", 32);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  EXPECT_EQ(Order("efa-direct", "1", 32), first);
  EXPECT_NE(Order("efa-direct", "2", 32), first);
  std::vector<int> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> sent(32);
  std::iota(sent.begin(), sent.end(), 0);
  EXPECT_EQ(sorted, sent);
}

TEST(Efa, MatchesTagsAndSourcesOfReceives) {
  Side a({.fabric = "efa"}), b({.fabric = "efa"}), c({.fabric = "efa"});
  const fi_addr_t from_a = c.Insert(a), from_b = c.Insert(b);
  const fi_addr_t a_to_c = a.Insert(c), b_to_c = b.Insert(c);
  Memory* to = c.Register({.bytes = 64});
  void* from_a_tag_2 = c.Context();
  void* from_b_any = c.Context();
  ASSERT_EQ(fi_trecv(c.endpoint(), to->data(), 8, to->descriptor(), from_a, 2,
                     0, from_a_tag_2),
            0);
  ASSERT_EQ(fi_trecv(c.endpoint(), to->data() + 8, 8, to->descriptor(), from_b,
                     0, ~0ull, from_b_any),
            0);
  ASSERT_EQ(fi_tinject(a.endpoint(), "unwanted", 8, a_to_c, 1), 0);
  ASSERT_EQ(fi_tinject(b.endpoint(), "by mask!", 8, b_to_c, 77), 0);
  Event event = Next({&c, &a, &b});
  EXPECT_EQ(event.context, from_b_any);
  EXPECT_EQ(event.tag, 77u);
  EXPECT_EQ(event.source, from_b);
  ASSERT_EQ(fi_tinject(a.endpoint(), "by tag!!", 8, a_to_c, 2), 0);
  event = Next({&c, &a, &b});
  EXPECT_EQ(event.context, from_a_tag_2);
  EXPECT_EQ(event.flags, FI_RECV | FI_TAGGED);
  EXPECT_EQ(std::memcmp(to->data(), "by tag!!by mask!", 16), 0);
}

TEST(Efa, CompletesShortSendsBeforeTheirReceiveAndLongOnesAfter) {
  Side a({.fabric = "efa"}), b({.fabric = "efa"});
  const fi_addr_t to_b = a.Insert(b);
  Memory* eager = a.Register({.bytes = 8192});
  Memory* large = a.Register({.bytes = 8193});
  ASSERT_EQ(Send(a, *eager, to_b), 0);
  EXPECT_EQ(Next({&a, &b}).error, 0);
  ASSERT_EQ(Send(a, *large, to_b), 0);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(a.Read().has_value());
    EXPECT_FALSE(b.Read().has_value());
  }
  Memory* to = b.Register({.bytes = 16386});
  ASSERT_EQ(Receive(b, *to), 0);
  EXPECT_EQ(Next({&b, &a}).bytes, 8192u);
  ASSERT_EQ(Receive(b, *to), 0);
  EXPECT_EQ(Next({&b, &a}).bytes, 8193u);
  EXPECT_EQ(Next({&a, &b}).error, 0);
}

TEST(Efa, CompletesNoSendEarlyThatAsksForDelivery) {
  Side a({}), b({});
  const fi_addr_t to_b = a.Insert(b);
  Memory* from = a.Register({});
  iovec buffer = {from->data(), 8};
  void* descriptor = from->descriptor();
  const fi_msg message = {
      .msg_iov = &buffer, .desc = &descriptor, .iov_count = 1, .addr = to_b};
  ASSERT_EQ(fi_sendmsg(a.endpoint(), &message, FI_DELIVERY_COMPLETE), 0);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(a.Read().has_value());
    EXPECT_FALSE(b.Read().has_value());
  }
  Memory* to = b.Register({});
  ASSERT_EQ(Receive(b, *to), 0);
  EXPECT_EQ(Next({&a, &b}).error, 0);
}

TEST(Efa, CancelsReceives) {
  Side a({.fabric = "efa"});
  Memory* to = a.Register({});
  void* context = a.Context();
  ASSERT_EQ(fi_recv(a.endpoint(), to->data(), 64, to->descriptor(),
                    FI_ADDR_UNSPEC, context),
            0);
  EXPECT_EQ(fi_cancel(&a.endpoint()->fid, context), 0);
  const Event event = Next({&a});
  EXPECT_EQ(event.error, FI_ECANCELED);
  EXPECT_EQ(event.context, context);
  EXPECT_EQ(fi_cancel(&a.endpoint()->fid, context), -FI_ENOENT);
}

TEST_P(Fabrics, TellOfMessagesThatTheReceiveIsTooSmallFor) {
  Memory* from = a_.Register({.bytes = 64});
  Memory* to = b_.Register({.bytes = 10});
  ASSERT_EQ(Receive(b_, *to), 0);
  ASSERT_EQ(Send(a_, *from, to_b_), 0);
  const Event event = Next({&b_, &a_});
  EXPECT_EQ(event.error, FI_ETRUNC);
  EXPECT_EQ(event.bytes, 10u);
}

// Device memory: what arrived is seen after a read through the same NIC.
TEST_P(Fabrics, HideArrivedDeviceDataUntilTheFence) {
  Memory* from = a_.Register({.bytes = 256, .salt = 1});
  Memory* device =
      b_.Register({.bytes = 512, .salt = 2, .iface = FI_HMEM_NEURON});
  Memory* scratch = b_.Register({.bytes = 8});
  const fi_addr_t to_self = b_.Insert(b_);
  const std::vector<std::byte> old = device->bytes();
  ASSERT_EQ(
      fi_writedata(a_.endpoint(), from->data(), 256, from->descriptor(), 1,
                   to_b_, device->address(), device->key(), a_.Context()),
      0);
  EXPECT_EQ(Next({&b_, &a_}).data, 1u);
  ASSERT_EQ(fi_recv(b_.endpoint(), device->data() + 256, 256,
                    device->descriptor(), FI_ADDR_UNSPEC, b_.Context()),
            0);
  ASSERT_EQ(Send(a_, *from, to_b_), 0);
  EXPECT_EQ(Next({&b_, &a_}).bytes, 256u);
  EXPECT_EQ(device->bytes(), old);
  ASSERT_EQ(fi_read(b_.endpoint(), scratch->data(), 8, scratch->descriptor(),
                    to_self, device->address(), device->key(), b_.Context()),
            0);
  EXPECT_EQ(Next({&b_, &a_}).flags, FI_READ | FI_RMA);
  EXPECT_EQ(std::memcmp(device->data(), from->data(), 256), 0);
  EXPECT_EQ(std::memcmp(device->data() + 256, from->data(), 256), 0);
}

TEST_P(Fabrics, DoNotFenceForAPeersRead) {
  Memory* from = a_.Register({.bytes = 64, .salt = 1});
  Memory* device = b_.Register({.salt = 2, .iface = FI_HMEM_NEURON});
  const std::vector<std::byte> old = device->bytes();
  ASSERT_EQ(fi_write(a_.endpoint(), from->data(), 64, from->descriptor(), to_b_,
                     device->address(), device->key(), a_.Context()),
            0);
  EXPECT_EQ(Next({&a_, &b_}).error, 0);
  Memory* seen = a_.Register({});
  ASSERT_EQ(fi_read(a_.endpoint(), seen->data(), 64, seen->descriptor(), to_b_,
                    device->address(), device->key(), a_.Context()),
            0);
  EXPECT_EQ(Next({&a_, &b_}).error, 0);
  EXPECT_EQ(seen->bytes(), old);
}

TEST(Rails, AreSeparateDomains) {
  Side first({.nic = 0}), second({.nic = 1});
  EXPECT_EQ(first.failed() + second.failed(), "");
  EXPECT_STREQ(first.info()->domain_attr->name, "manners0-rdm");
  EXPECT_STREQ(first.info()->next->domain_attr->name, "manners1-rdm");
  EXPECT_NE(first.info()->nic->bus_attr->attr.pci.bus_id,
            first.info()->next->nic->bus_attr->attr.pci.bus_id);
  EXPECT_EQ(first.info()->nic->link_attr->mtu, 8192u);
}

TEST(Selective, CompletesOnlyWhatAsksForIt) {
  Side a({.bind_flags = FI_SELECTIVE_COMPLETION}), b({});
  const fi_addr_t to_b = a.Insert(b);
  Memory* from = a.Register({});
  ASSERT_EQ(Send(a, *from, to_b), 0);
  void* context = a.Context();
  iovec buffer = {from->data(), 8};
  void* descriptor = from->descriptor();
  const fi_msg message = {.msg_iov = &buffer,
                          .desc = &descriptor,
                          .iov_count = 1,
                          .addr = to_b,
                          .context = context};
  ASSERT_EQ(fi_sendmsg(a.endpoint(), &message, FI_COMPLETION), 0);
  EXPECT_EQ(Next({&a, &b}).context, context);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(a.Read().has_value());
}

TEST_P(Fabrics, WakeWhoPollsTheQueuesDescriptor) {
  Side sleeper({.fabric = GetParam(), .wait = FI_WAIT_FD});
  const fi_addr_t to_sleeper = a_.Insert(sleeper);
  Memory* to = sleeper.Register({});
  ASSERT_EQ(Receive(sleeper, *to), 0);
  pollfd fd = {.events = POLLIN};
  ASSERT_EQ(fi_control(&sleeper.cq()->fid, FI_GETWAIT, &fd.fd), 0);
  fid* queues[] = {&sleeper.cq()->fid};
  ASSERT_EQ(fi_trywait(sleeper.fabric(), queues, 1), 0);
  EXPECT_EQ(poll(&fd, 1, 0), 0);
  Memory* from = a_.Register({});
  ASSERT_EQ(Send(a_, *from, to_sleeper), 0);
  EXPECT_EQ(poll(&fd, 1, 0), 1);
  int tries = 0;
  std::optional<Event> event;
  while (!event && ++tries < 100) {
    EXPECT_EQ(fi_trywait(sleeper.fabric(), queues, 1), -FI_EAGAIN);
    event = sleeper.Read();
  }
  ASSERT_TRUE(event.has_value());
  ASSERT_EQ(fi_trywait(sleeper.fabric(), queues, 1), 0);
  EXPECT_EQ(poll(&fd, 1, 0), 0);
  char unused[64];
  EXPECT_EQ(fi_cq_sread(sleeper.cq(), unused, 1, nullptr, 1), -FI_EAGAIN);
}

TEST(Efa, LetsNobodySleepAfterARefusedPost) {
  Setting storm("MANNERS_EAGAIN", "99");
  Side a({.wait = FI_WAIT_FD});
  const fi_addr_t to_self = a.Insert(a);
  fid* queues[] = {&a.cq()->fid};
  while (fi_inject(a.endpoint(), "12345678", 8, to_self) != -FI_EAGAIN) {
  }
  EXPECT_EQ(fi_trywait(a.fabric(), queues, 1), -FI_EAGAIN);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(a.Read().has_value());
  EXPECT_EQ(fi_trywait(a.fabric(), queues, 1), 0);
}

TEST(Addresses, AreFoundAgainAndKeepTheirIndex) {
  Side a({}), b({});
  const std::string name = b.Name();
  const fi_addr_t address = a.Insert(name);
  EXPECT_EQ(a.Insert(name), address);
  std::string found(64, '\0');
  size_t bytes = found.size();
  ASSERT_EQ(fi_av_lookup(a.av(), address, found.data(), &bytes), 0);
  EXPECT_EQ(found.substr(0, bytes), name);
  EXPECT_EQ(fi_av_lookup(a.av(), 5, found.data(), &bytes), -FI_EADDRNOTAVAIL);
  char text[128];
  bytes = sizeof(text);
  EXPECT_TRUE(std::string(fi_av_straddr(a.av(), name.data(), text, &bytes))
                  .starts_with("fi_addr_manners://"));
  fi_addr_t removed = address;
  EXPECT_EQ(fi_av_remove(a.av(), &removed, 1, 0), 0);
  EXPECT_NE(a.Insert(name), address);
}

// Numbered messages both ways between two threads, in storms of -FI_EAGAIN.
void Talk(Side& side, fi_addr_t peer, int count) {
  Memory* from = side.Register({.bytes = 2000, .salt = 8});
  Memory* to = side.Register({.bytes = 2000});
  int posted = 0, sent = 0, received = 0;
  Drive(
      {&side},
      [&](Side&, const Event& event) {
        EXPECT_EQ(event.error, 0);
        if ((event.flags & FI_RECV) == 0) return;
        EXPECT_EQ(to->bytes(), from->bytes());
        ++received;
      },
      [&] {
        if (posted == received && posted < count && Receive(side, *to) == 0)
          ++posted;
        if (sent < count && Send(side, *from, peer) == 0) ++sent;
        return received == count && sent == count;
      });
}

TEST_P(Fabrics, CarryBetweenThreadsThroughStormsAndFullQueues) {
  Setting storm("MANNERS_EAGAIN", "50");
  Setting transmits("MANNERS_TX_SIZE", "4");
  Side a({.fabric = GetParam(), .completions = 2});
  Side b({.fabric = GetParam(), .completions = 2});
  const fi_addr_t to_b = a.Insert(b), to_a = b.Insert(a);
  std::thread peer([&] { Talk(b, to_a, 300); });
  Talk(a, to_b, 300);
  peer.join();
}

// Runs `body` in a process of its own, with a socket to talk to the test.
template <typename Body>
pid_t Fork(int* socket, Body body) {
  int sockets[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(sockets[0]);
    body(sockets[1]);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  close(sockets[1]);
  *socket = sockets[0];
  return child;
}

std::string Exchange(int socket, const std::string& text) {
  EXPECT_EQ(send(socket, text.data(), text.size(), 0),
            static_cast<ssize_t>(text.size()));
  std::string other(256, '\0');
  other.resize(std::max<ssize_t>(0, recv(socket, other.data(), 256, 0)));
  return other;
}

TEST(Processes, ExchangeMessagesAndRma) {
  for (const char* fabric : {"efa", "efa-direct"}) {
    int socket = -1;
    const pid_t child = Fork(&socket, [&](int parent) {
      Side b({.fabric = fabric});
      Memory* to = b.Register({.bytes = 1 << 20});
      ASSERT_EQ(Receive(b, *to), 0);
      b.Insert(Exchange(parent, b.Name()));
      const uint64_t target[] = {to->address(), to->key()};
      Exchange(parent, std::string(reinterpret_cast<const char*>(target), 16));
      EXPECT_EQ(Next({&b}).bytes, 100u);
      EXPECT_EQ(Next({&b}).data, 42u);
      EXPECT_EQ(to->bytes()[70000], std::byte{'z'});
      Exchange(parent, "done");
    });
    Side a({.fabric = fabric});
    const fi_addr_t to_b = a.Insert(Exchange(socket, a.Name()));
    uint64_t target[2];
    std::memcpy(target, Exchange(socket, "?").data(), sizeof(target));
    Memory* from = a.Register({.bytes = 1 << 20});
    std::fill_n(from->data(), from->size(), std::byte{'z'});
    ASSERT_EQ(fi_send(a.endpoint(), from->data(), 100, from->descriptor(), to_b,
                      a.Context()),
              0);
    EXPECT_EQ(Next({&a}).error, 0);
    ASSERT_EQ(fi_writedata(a.endpoint(), from->data(), from->size(),
                           from->descriptor(), 42, to_b, target[0], target[1],
                           a.Context()),
              0);
    EXPECT_EQ(Next({&a}).error, 0);
    EXPECT_EQ(Exchange(socket, "done"), "done");
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    close(socket);
  }
}

TEST(Processes, FailOperationsToAPeerThatDied) {
  int socket = -1;
  const pid_t child = Fork(&socket, [&](int parent) {
    Side b({.fabric = "efa-direct"});
    Exchange(parent, b.Name());
    Exchange(parent, "?");
  });
  Side a({.fabric = "efa-direct"});
  const fi_addr_t to_b = a.Insert(Exchange(socket, "?"));
  Memory* from = a.Register({});
  ASSERT_EQ(Send(a, *from, to_b), 0);
  ASSERT_EQ(Send(a, *from, to_b), 0);
  EXPECT_FALSE(a.Read().has_value());
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  for (int i = 0; i < 2; ++i) {
    const Event event = Next({&a});
    EXPECT_EQ(event.error, FI_ECONNRESET);
    EXPECT_EQ(event.text,
              "manners: Unresponsive remote: the peer's endpoint is gone");
  }
  ASSERT_EQ(Send(a, *from, to_b), 0);
  EXPECT_EQ(Next({&a}).error, FI_ECONNRESET);
  close(socket);
}

TEST(Fork, GivesTheChildErrorsAndLeavesTheParentAlone) {
  Side a({}), b({});
  const fi_addr_t to_b = a.Insert(b);
  Memory* from = a.Register({});
  Memory* to = b.Register({});
  int socket = -1;
  const pid_t child = Fork(&socket, [&](int) {
    EXPECT_EQ(Send(a, *from, to_b), -FI_EOPBADSTATE);
    fi_cq_tagged_entry entry;
    EXPECT_EQ(fi_cq_read(a.cq(), &entry, 1), -FI_EOPBADSTATE);
    EXPECT_EQ(fi_close(&a.endpoint()->fid), -FI_EOPBADSTATE);
  });
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(Receive(b, *to), 0);
  ASSERT_EQ(Send(a, *from, to_b), 0);
  EXPECT_EQ(Next({&b, &a}).error, 0);
  EXPECT_EQ(Next({&a, &b}).error, 0);
  close(socket);
}

}  // namespace
}  // namespace trnccl::manners
