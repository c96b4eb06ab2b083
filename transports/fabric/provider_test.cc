// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/provider.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdlib>
#include <deque>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl::fabric {
namespace {

// A description with all that it points to. It's never freed by itself.
struct Description {
  fi_info info = {};
  fi_tx_attr tx = {};
  fi_rx_attr rx = {};
  fi_ep_attr endpoint = {};
  fi_domain_attr domain = {};
  fi_fabric_attr fabric = {};
  fid_nic nic = {};
  fi_bus_attr bus = {};
  sockaddr_in6 address = {};
  std::string provider;
  std::string adapter;

  Description() {
    info.tx_attr = &tx;
    info.rx_attr = &rx;
    info.ep_attr = &endpoint;
    info.domain_attr = &domain;
    info.fabric_attr = &fabric;
  }
  Description(const Description&) = delete;
};

// What the library under test offers, and the descriptions that it made.
std::deque<Description>& Offers() {
  static auto& offers = *new std::deque<Description>;
  return offers;
}
std::deque<Description>& Made() {
  static auto& made = *new std::deque<Description>;
  return made;
}

int Find(const fi_info* hints, fi_info** found) {
  fi_info** end = found;
  const char* wanted = hints->fabric_attr->prov_name;
  for (Description& offer : Offers()) {
    if (wanted != nullptr && offer.provider != wanted) continue;
    *end = &offer.info;
    end = &offer.info.next;
  }
  *end = nullptr;
  free(hints->fabric_attr->prov_name);
  hints->fabric_attr->prov_name = nullptr;
  return *found == nullptr ? -1 : 0;
}

fi_info* Duplicate(const fi_info* info) {
  Description& copy = Made().emplace_back();
  if (info != nullptr) copy.info = *info;
  return &copy.info;
}

Description& Offer(const std::string& provider, const std::string& adapter) {
  Description& offer = Offers().emplace_back();
  offer.provider = provider;
  offer.adapter = adapter;
  offer.fabric.prov_name = offer.provider.data();
  offer.domain.name = offer.adapter.data();
  offer.endpoint.max_msg_size = size_t{1} << 30;
  return offer;
}

void OfferIp(const std::string& adapter, const std::string& ip) {
  Description& offer = Offer("net", adapter);
  offer.info.addr_format = FI_SOCKADDR;
  offer.info.src_addr = &offer.address;
  auto* ipv4 = reinterpret_cast<sockaddr_in*>(&offer.address);
  if (inet_pton(AF_INET, ip.c_str(), &ipv4->sin_addr) == 1) {
    ipv4->sin_family = AF_INET;
    return;
  }
  offer.address.sin6_family = AF_INET6;
  ASSERT_EQ(inet_pton(AF_INET6, ip.c_str(), &offer.address.sin6_addr), 1);
}

void OfferAdapter(const std::string& adapter, uint8_t bus) {
  Description& offer = Offer("efa", adapter);
  offer.info.addr_format = FI_ADDR_EFA;
  offer.info.nic = &offer.nic;
  offer.nic.bus_attr = &offer.bus;
  offer.bus.bus_type = FI_BUS_PCI;
  offer.bus.attr.pci.bus_id = bus;
}

class ChoosesAdapters : public testing::Test {
 protected:
  ~ChoosesAdapters() override {
    Offers().clear();
    Made().clear();
  }

  // A rail each: the adapter, and after @ the address.
  std::vector<std::string> Chosen(const PortOptions& options) {
    const auto provider = ChooseProvider(library_, options);
    if (!provider.ok()) return {std::string(provider.status().message())};
    std::vector<std::string> rails;
    for (const Info& rail : provider->rails) {
      rails.emplace_back(rail->domain_attr->name);
      const auto* ip = static_cast<const sockaddr*>(rail->src_addr);
      if (ip != nullptr)
        rails.back() += ip->sa_family == AF_INET ? "@ipv4" : "@ipv6";
    }
    return rails;
  }

  using Names = std::vector<std::string>;
  FabricLibrary library_ = {.getinfo =
                                [](auto... asked) {
                                  const std::tuple all(asked...);
                                  return Find(std::get<4>(all),
                                              std::get<5>(all));
                                },
                            .freeinfo = [](fi_info*) {},
                            .dupinfo = Duplicate,
                            .fabric = nullptr,
                            .strerror = nullptr,
                            .version = nullptr,
                            .path = "made up"};
};

TEST_F(ChoosesAdapters, OfTheFirstAddressThatIsThere) {
  OfferIp("docker0", "172.17.0.1");
  OfferIp("eth0", "10.1.0.1");
  OfferIp("eth1", "10.2.0.1");
  OfferIp("eth1", "fd02::1");
  EXPECT_EQ(Chosen({.addresses = {"10.9.0.1", "10.2.0.1", "10.1.0.1"}}),
            Names{"eth1@ipv4"});
  EXPECT_EQ(Chosen({.addresses = {"fd02::1"}}), Names{"eth1@ipv6"});
  EXPECT_EQ(Chosen({}), Names{"docker0@ipv4"});
}

TEST_F(ChoosesAdapters, OfNoOtherAddressWhereOneIsThere) {
  OfferIp("docker0", "172.17.0.1");
  OfferIp("eth0", "10.1.0.1");
  EXPECT_EQ(Chosen({.addresses = {"10.1.0.1"}, .rails = 8}),
            Names{"eth0@ipv4"});
}

TEST_F(ChoosesAdapters, OfTheSameFamilyWhereNoAddressIsThere) {
  OfferIp("eth0", "10.1.0.1");
  OfferIp("eth0", "fd01::1");
  EXPECT_EQ(Chosen({.addresses = {"fd02::1"}}), Names{"eth0@ipv6"});
  EXPECT_EQ(Chosen({.addresses = {"10.2.0.1"}}), Names{"eth0@ipv4"});
}

TEST_F(ChoosesAdapters, ByNameBeforeAllElse) {
  OfferIp("docker0", "172.17.0.1");
  OfferIp("docker0", "fd17::1");
  OfferIp("eth0", "10.1.0.1");
  EXPECT_EQ(Chosen({.adapters = {"docker0"}, .addresses = {"10.1.0.1"}}),
            Names{"docker0@ipv4"});
  EXPECT_EQ(Chosen({.adapters = {"docker0"}, .addresses = {"fd01::1"}}),
            Names{"docker0@ipv6"});
  EXPECT_EQ(Chosen({.adapters = {"eth0", "docker0"}, .rails = 2}),
            (Names{"eth0@ipv4", "docker0@ipv4"}));
  const std::string error = Chosen({.adapters = {"eth7"}})[0];
  EXPECT_NE(error.find("no provider on eth7"), error.npos) << error;
  EXPECT_NE(error.find("net on docker0, net on eth0"), error.npos) << error;
}

TEST_F(ChoosesAdapters, ByTheirPlaceOnTheBus) {
  OfferIp("eth0", "10.1.0.1");
  OfferAdapter("efa0", 0x10);
  OfferAdapter("efa1", 0x20);
  OfferAdapter("efa2", 0xc9);
  const PortOptions nearest = {.addresses = {"10.1.0.1"},
                               .pci = {"0000:c9:00.0", "0000:10:00.0"}};
  EXPECT_EQ(Chosen(nearest), Names{"efa2"});
  PortOptions all = nearest;
  all.rails = 8;
  EXPECT_EQ(Chosen(all), (Names{"efa2", "efa0", "efa1"}));
}

TEST_F(ChoosesAdapters, AsManyAsARanksShare) {
  for (uint8_t bus = 1; bus <= 8; ++bus)
    OfferAdapter("efa" + std::to_string(bus), bus);
  for (const auto& [sharers, rails] :
       std::vector<std::pair<int, size_t>>{{1, 8}, {2, 4}, {3, 2}, {16, 1}}) {
    EXPECT_EQ(Chosen({.rails = 0, .sharers = sharers}).size(), rails)
        << sharers;
  }
  EXPECT_EQ(Chosen({.rails = 3, .sharers = 16}).size(), 3u);
}

TEST_F(ChoosesAdapters, KnowsWhoConnectsStreamsOrResends) {
  const struct {
    const char* name;
    bool resends, streams, crosses;
  } kCases[] = {{"net", false, true, true},
                {"tcp", false, true, true},
                {"tcp;ofi_rxm", false, true, false},
                {"udp;ofi_rxd", true, false, false},
                {"efa", false, false, false}};
  for (const auto& expected : kCases) {
    Offers().clear();
    Offer(expected.name, "adapter");
    const auto provider = ChooseProvider(library_, {});
    ASSERT_TRUE(provider.ok()) << provider.status();
    EXPECT_EQ(provider->resends, expected.resends) << expected.name;
    EXPECT_EQ(provider->streams, expected.streams) << expected.name;
    EXPECT_EQ(provider->crosses, expected.crosses) << expected.name;
  }
}

TEST(SliceBytes, AreFewWhereTcpPaces) {
  EXPECT_EQ(SliceBytesOf("net", "bbr"), 64u << 10);
  EXPECT_EQ(SliceBytesOf("tcp;ofi_rxm", "bbr2"), 64u << 10);
  for (const char* other : {"cubic", "reno", ""})
    EXPECT_EQ(SliceBytesOf("net", other), 512u << 10) << other;
  for (const char* other : {"efa", "efa-direct", "udp;ofi_rxd"})
    EXPECT_EQ(SliceBytesOf(other, "bbr"), 512u << 10) << other;
}

TEST_F(ChoosesAdapters, OfProvidersThatLeaveTheMachineAlone) {
  Offer("shm", "shm");
  OfferIp("eth0", "10.1.0.1");
  const std::string error = Chosen({.provider = "shm"})[0];
  EXPECT_NE(error.find("no provider \"shm\""), error.npos) << error;
  EXPECT_NE(error.find("net on eth0"), error.npos) << error;
  EXPECT_EQ(Chosen({.provider = "shm", .within_machine = true}), Names{"shm"});
}

TEST_F(ChoosesAdapters, OnlyOneOfIpUnlessTold) {
  OfferIp("eth0", "10.1.0.1");
  OfferIp("eth1", "10.2.0.1");
  EXPECT_EQ(Chosen({.rails = 0}).size(), 1u);
  EXPECT_EQ(Chosen({.rails = 2}).size(), 2u);
}

}  // namespace
}  // namespace trnccl::fabric
