// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What the test provider refuses: hints that it can't satisfy, and callers
// that break a rule.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "gtest/gtest.h"
#include "transports/fabric/test_provider/harness.h"

namespace trnccl::manners {
namespace {

constexpr uint64_t kMrDmabuf = uint64_t{1} << 40;
struct Dmabuf {
  int fd;
  uint64_t offset;
  size_t len;
  void* base_addr;
};

TEST(Hints, GetEachFabricWithEachNic) {
  const Info hints(fi_allocinfo(), fi_freeinfo);
  hints->mode = FI_CONTEXT2;
  hints->domain_attr->mr_mode = ~0;
  hints->fabric_attr->prov_name = strdup("manners");
  Setting nics("MANNERS_NICS", "3");
  Setting pci("MANNERS_PCI", "0001:ab:1d.2");
  std::string found;
  const Info info = Query(hints.get());
  for (const fi_info* next = info.get(); next != nullptr; next = next->next)
    found += std::string(next->fabric_attr->name) + ":" +
             next->domain_attr->name + " ";
  EXPECT_EQ(found,
            "efa-direct:manners0-rdm efa-direct:manners1-rdm "
            "efa-direct:manners2-rdm "
            "efa:manners0-rdm efa:manners1-rdm efa:manners2-rdm ");
  EXPECT_EQ(info->nic->bus_attr->attr.pci.bus_id, 0xab);
  EXPECT_EQ(info->nic->bus_attr->attr.pci.function_id, 2);
}

TEST(Hints, GetNothingWithoutAllThatTheFabricAsksFor) {
  for (int bit : {FI_MR_LOCAL, FI_MR_HMEM, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED,
                  FI_MR_PROV_KEY, FI_MR_ENDPOINT}) {
    const Info hints = Hints("efa-direct");
    hints->domain_attr->mr_mode &= ~bit;
    EXPECT_EQ(Query(hints.get()), nullptr) << bit;
  }
  const Info hints = Hints("efa-direct");
  hints->mode = 0;
  EXPECT_EQ(Query(hints.get()), nullptr);
}

TEST(Hints, GetNothingThatEfaDirectLacks) {
  const Info tags = Hints("efa-direct");
  tags->caps |= FI_TAGGED;
  EXPECT_EQ(Query(tags.get()), nullptr);
  const Info order = Hints("efa-direct");
  order->tx_attr->msg_order = FI_ORDER_SAS;
  EXPECT_EQ(Query(order.get()), nullptr);
  const Info progress = Hints("efa-direct");
  progress->domain_attr->data_progress = FI_PROGRESS_AUTO;
  EXPECT_EQ(Query(progress.get()), nullptr);
  const Info data = Hints("efa-direct");
  data->domain_attr->cq_data_size = 8;
  EXPECT_EQ(Query(data.get()), nullptr);
  const Info inject = Hints("efa-direct");
  inject->tx_attr->inject_size = 33;
  EXPECT_EQ(Query(inject.get()), nullptr);
}

TEST(Hints, GetNoMoreThanTheyAskFor) {
  const Info plain = Hints("efa");
  plain->caps = FI_MSG;
  plain->tx_attr->msg_order = 0;
  plain->domain_attr->mr_mode &= ~FI_MR_HMEM;
  const Info info = Query(plain.get());
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->caps & (FI_HMEM | FI_RMA | FI_TAGGED), 0u);
  EXPECT_EQ(info->domain_attr->mr_mode & FI_MR_HMEM, 0);
  EXPECT_EQ(info->tx_attr->msg_order, 0u);
  const Info direct = Hints("efa-direct");
  EXPECT_EQ(Query(direct.get())->ep_attr->max_msg_size, size_t{1} << 30);
  direct->caps = FI_MSG;
  EXPECT_EQ(Query(direct.get())->ep_attr->max_msg_size, 8192u);
}

// Two endpoints, and what each is to the other. Death tests run in a process
// of their own, that repeats the test up to the statement.
class Rules : public testing::Test {
 protected:
  Rules() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  ssize_t Send(const void* base, size_t bytes, void* descriptor) {
    return fi_send(a_.endpoint(), base, bytes, descriptor, to_b_, a_.Context());
  }
  ssize_t Write(uint64_t address, uint64_t key, size_t bytes) {
    return fi_write(a_.endpoint(), from_->data(), bytes, from_->descriptor(),
                    to_b_, address, key, a_.Context());
  }
  // Until the end of what was posted; it may be the process's.
  void Finish() { Next({&a_, &b_}); }

  Side a_{{.fabric = "efa-direct"}};
  Side b_{{.fabric = "efa-direct"}};
  const fi_addr_t to_b_ = a_.Insert(b_);
  const fi_addr_t to_a_ = b_.Insert(a_);
  Memory* from_ = a_.Register({.bytes = 10000});
  Memory* to_ = b_.Register({.bytes = 64});
};

TEST_F(Rules, LocalBuffersNeedARegisteredDescriptor) {
  char stack[8] = {};
  EXPECT_DEATH(Send(stack, 8, nullptr),
               "breach: fi_send of 8 bytes with no descriptor");
  EXPECT_DEATH(Send(stack, 8, stack), "a descriptor that isn't registered");
  EXPECT_DEATH(Send(stack, 8, from_->descriptor()), "leaves its region");
  EXPECT_DEATH(Send(from_->data() + 9999, 2, from_->descriptor()),
               "leaves its region");
  Memory* other = a_.Register({.access = FI_RECV});
  EXPECT_DEATH(Send(other->data(), 8, other->descriptor()),
               "a region without that access");
}

TEST_F(Rules, DescriptorsEndWithTheirRegion) {
  void* descriptor = from_->descriptor();
  from_->Deregister();
  EXPECT_DEATH(Send(from_->data(), 8, descriptor), "isn't registered");
}

TEST_F(Rules, RegionsOfDirectAreBoundToTheirEndpoint) {
  std::byte bytes[8] = {};
  fid_mr* region = nullptr;
  ASSERT_EQ(
      fi_mr_reg(a_.domain(), bytes, 8, FI_SEND, 0, 0, 0, &region, nullptr), 0);
  EXPECT_EQ(fi_mr_key(region), FI_KEY_NOTAVAIL);
  EXPECT_DEATH(Send(bytes, 8, fi_mr_desc(region)), "that isn't enabled");
  EXPECT_DEATH(static_cast<void>(fi_mr_enable(region)), "before it's bound");
  EXPECT_EQ(fi_close(&region->fid), 0);
}

TEST_F(Rules, RemoteAccessKeepsToRangeKeyAndFlags) {
  EXPECT_DEATH((Write(to_->address() + 1, to_->key(), 64), Finish()),
               "refused: Remote range is beyond");
  EXPECT_DEATH((Write(to_->address(), to_->key() + 1, 64), Finish()),
               "refused: Remote key was never given out");
  Memory* other = b_.Register({.access = FI_REMOTE_READ});
  EXPECT_DEATH((Write(other->address(), other->key(), 64), Finish()),
               "refused: Remote memory isn't registered for this access");
}

TEST_F(Rules, WritesToAClosedRegionFailAtTheInitiator) {
  const uint64_t key = to_->key();
  to_->Deregister();
  ASSERT_EQ(Write(to_->address(), key, 64), 0);
  const Event event = Next({&a_, &b_});
  EXPECT_EQ(event.error, FI_EKEYREJECTED);
  EXPECT_EQ(event.text, "manners: Remote key was closed");
}

TEST_F(Rules, DirectTargetsMustKnowTheInitiator) {
  Side c({.fabric = "efa-direct"});
  const fi_addr_t to_b = c.Insert(b_);
  Memory* from = c.Register({});
  ASSERT_EQ(fi_write(c.endpoint(), from->data(), 64, from->descriptor(), to_b,
                     to_->address(), to_->key(), c.Context()),
            0);
  EXPECT_EQ(Next({&c, &b_}).error, FI_EHOSTUNREACH);
}

TEST_F(Rules, RegionsStayWhileOperationsUseThem) {
  ASSERT_EQ(Send(from_->data(), 8, from_->descriptor()), 0);
  from_->Deregister();
  ASSERT_EQ(fi_recv(b_.endpoint(), to_->data(), 64, to_->descriptor(),
                    FI_ADDR_UNSPEC, b_.Context()),
            0);
  EXPECT_DEATH(Finish(), "closed before an operation on it had completed");
}

TEST_F(Rules, RegionsStayUnderPostedReceives) {
  ASSERT_EQ(fi_recv(b_.endpoint(), to_->data(), 64, to_->descriptor(),
                    FI_ADDR_UNSPEC, b_.Context()),
            0);
  to_->Deregister();
  ASSERT_EQ(Send(from_->data(), 8, from_->descriptor()), 0);
  EXPECT_DEATH(Finish(), "in a receive whose region was closed");
}

TEST_F(Rules, LimitsHold) {
  EXPECT_DEATH(Send(from_->data(), 8193, from_->descriptor()),
               "fi_send of 8193 bytes, at most 8192 may be");
  EXPECT_DEATH(
      static_cast<void>(fi_inject(a_.endpoint(), from_->data(), 33, to_b_)),
      "fi_inject injects 33 bytes, inject_size is 32");
  iovec buffers[3] = {};
  void* descriptors[3] = {};
  EXPECT_DEATH(static_cast<void>(fi_sendv(a_.endpoint(), buffers, descriptors,
                                          3, to_b_, a_.Context())),
               "fi_sendv with 3 buffers, iov_limit is 2");
  EXPECT_DEATH(static_cast<void>(fi_senddata(
                   a_.endpoint(), from_->data(), 8, from_->descriptor(),
                   uint64_t{1} << 32, to_b_, a_.Context())),
               "immediate data over 4 bytes");
}

TEST_F(Rules, CapabilitiesAndAddressesMustBeThere) {
  EXPECT_DEATH(
      static_cast<void>(fi_tsend(a_.endpoint(), from_->data(), 8,
                                 from_->descriptor(), to_b_, 1, a_.Context())),
      "fi_tsend on an endpoint without that capability");
  EXPECT_DEATH(
      static_cast<void>(fi_inject(a_.endpoint(), from_->data(), 8, to_b_ + 1)),
      "fi_addr_t 1 isn't in the address vector");
  Side efa({.fabric = "efa"});
  EXPECT_DEATH(efa.Insert(a_), "an address of fabric efa-direct");
}

TEST_F(Rules, ContextsAreTheProvidersUntilCompletion) {
  auto* context = static_cast<fi_context2*>(a_.Context());
  const auto send = [&](void* with) {
    return fi_send(a_.endpoint(), from_->data(), 8, from_->descriptor(), to_b_,
                   with);
  };
  ASSERT_EQ(send(context), 0);
  EXPECT_DEATH(send(context), "is used again before its completion");
  EXPECT_DEATH(send(&context->internal[7]), "is used again");
  EXPECT_DEATH(send(nullptr), "needs a context");
  ASSERT_EQ(fi_recv(b_.endpoint(), to_->data(), 64, to_->descriptor(),
                    FI_ADDR_UNSPEC, b_.Context()),
            0);
  EXPECT_DEATH(
      {
        context->internal[3] = nullptr;
        Finish();
      },
      "was written to before its completion");
  EXPECT_EQ(Next({&a_, &b_}).context, context);
  EXPECT_EQ(send(context), 0);
}

TEST_F(Rules, BuffersStayAsTheyWereUntilCompletion) {
  ASSERT_EQ(Write(to_->address(), to_->key(), 64), 0);
  EXPECT_DEATH(
      {
        from_->data()[63] ^= std::byte{1};
        Finish();
      },
      "changed before its completion");
}

TEST_F(Rules, CloseInOrder) {
  EXPECT_EQ(fi_close(&a_.cq()->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&a_.av()->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&a_.domain()->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&a_.fabric()->fid), -FI_EBUSY);
}

TEST_F(Rules, RegistrationNeedsMappedMemory) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_EQ(munmap(static_cast<char*>(memory) + page, page), 0);
  fid_mr* region = nullptr;
  EXPECT_EQ(fi_mr_reg(a_.domain(), memory, 3 * page, FI_SEND, 0, 0, 0, &region,
                      nullptr),
            -FI_EFAULT);
  munmap(memory, 3 * page);
}

TEST(Pins, ShowRegistrationsThatOutliveTheirMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Setting pins("MANNERS_PINS", "1");
  Side a({});
  const fi_addr_t to_self = a.Insert(a);
  const auto map = [](void* at) {
    return mmap(at, 4096, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0),
                -1, 0);
  };
  void* memory = map(nullptr);
  fid_mr* region = nullptr;
  ASSERT_EQ(
      fi_mr_reg(a.domain(), memory, 4096, FI_SEND, 0, 0, 0, &region, nullptr),
      0);
  const auto send = [&] {
    return fi_send(a.endpoint(), memory, 100, fi_mr_desc(region), to_self,
                   nullptr);
  };
  EXPECT_EQ(send(), 0);
  munmap(memory, 4096);
  ASSERT_EQ(map(memory), memory);
  EXPECT_DEATH(send(), "memory was unmapped while it's registered");
  a.CloseEndpoint();
  EXPECT_EQ(fi_close(&region->fid), 0);
  munmap(memory, 4096);
}

// 0 or what the registration of a file's memory gave.
int RegisterDmabuf(Side& side, const Dmabuf& dmabuf, fid_mr** region) {
  const fi_mr_attr attr = {
      .mr_iov = reinterpret_cast<const iovec*>(&dmabuf),
      .iov_count = 1,
      .access = FI_REMOTE_WRITE,
      .iface = FI_HMEM_NEURON,
  };
  return fi_mr_regattr(side.domain(), &attr, kMrDmabuf, region);
}

TEST_F(Rules, DmabufNeedsItsApiAndMemoryOfThatSize) {
  const int file = memfd_create("device", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 8192), 0);
  void* memory =
      mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  fid_mr* region = nullptr;
  Dmabuf dmabuf = {file, 4096, 4096, memory};
  EXPECT_DEATH(RegisterDmabuf(a_, dmabuf, &region), "an API before 1.20");
  Setting setting("MANNERS_DMABUF", "1");
  Side newer({});
  ASSERT_EQ(RegisterDmabuf(newer, dmabuf, &region), 0);
  EXPECT_EQ(fi_close(&region->fid), 0);
  dmabuf.len = 4097;
  EXPECT_EQ(RegisterDmabuf(newer, dmabuf, &region), -FI_EINVAL);
  dmabuf.fd = -1;
  EXPECT_EQ(RegisterDmabuf(newer, dmabuf, &region), -FI_EBADF);
  munmap(memory, 8192);
  close(file);
}

TEST(Settings, RefuseWhatTheyDontKnow) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto refuses = [](const char* name, const char* value,
                          const char* text) {
    EXPECT_DEATH(
        {
          setenv(name, value, 1);
          Query(Hints("efa").get());
        },
        text);
  };
  refuses("MANNERS_SED", "1", "MANNERS_SED isn't a setting");
  refuses("MANNERS_FAIL", "tx:1,rex:2", "names 'rex', which isn't a fault");
  refuses("MANNERS_FAIL", "tx:", "isn't a number");
  refuses("MANNERS_FABRIC", "ef", "efa and efa-direct are known");
  refuses("MANNERS_RNR", "drop", "retry and error are known");
  refuses("MANNERS_EAGAIN", "100", "nothing would pass");
}

}  // namespace
}  // namespace trnccl::manners
