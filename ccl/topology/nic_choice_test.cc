// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/nic_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"

namespace trnccl {
namespace {

// hardware_test.cc says what's where.
std::vector<Nic> Cards() {
  return {{.name = "far", .pci = "0000:81:00.0", .mbps = 100},
          {.name = "other", .pci = "0000:61:00.0", .mbps = 100},
          {.name = "numa", .pci = "0000:41:00.0", .mbps = 100},
          {.name = "beside", .pci = "0000:04:00.0", .mbps = 100},
          {.name = "same", .pci = "0000:01:00.0", .mbps = 100},
          {.name = "virtual"}};
}

std::string Order(const std::vector<Nic>& nics, const Locality& locality) {
  const auto hardware =
      Hardware::FromXmlFile("ccl/topology/testdata/two_packages.xml");
  EXPECT_TRUE(hardware.ok()) << hardware.status();
  const auto choices = RankNics(nics, locality, *hardware);
  if (!choices.ok()) return std::string(choices.status().message());
  return absl::StrJoin(*choices, " ",
                       [](std::string* out, const NicChoice& choice) {
                         out->append(choice.nic.name);
                       });
}

TEST(NicChoice, TakesTheClosestToTheDevice) {
  EXPECT_EQ(Order(Cards(), {.device_pci = "0000:01:01.0"}),
            "same beside numa other far virtual");
  EXPECT_EQ(Order(Cards(), {.device_pci = "0000:81:01.0", .cpus = {0}}),
            "far other numa beside same virtual");
}

TEST(NicChoice, TakesTheClosestToTheProcessorsOfAHostRank) {
  EXPECT_EQ(Order(Cards(), {.cpus = {4, 5}}),
            "far other numa beside same virtual");
  EXPECT_EQ(Order(Cards(), {.cpus = {2}}),
            "other numa beside same far virtual");
}

TEST(NicChoice, SpreadsTheRanksOfANodeOverCardsThatAreAsClose) {
  const std::vector<std::string> first = {"numa", "beside", "same", "numa"};
  for (int rank = 0; rank < 4; ++rank) {
    const std::string order =
        Order(Cards(), {.cpus = {0, 1}, .local_rank = rank});
    EXPECT_EQ(order.substr(0, order.find(' ')),
              first[static_cast<size_t>(rank)]);
    EXPECT_NE(order.find(" other far virtual"), std::string::npos) << order;
  }
}

TEST(NicChoice, PrefersTheFasterOfTwoThatAreAsClose) {
  std::vector<Nic> cards = Cards();
  cards[4].mbps = 200;
  EXPECT_EQ(Order(cards, {.cpus = {0, 1}, .local_rank = 3}),
            "same numa beside other far virtual");
}

TEST(NicChoice, LeavesOutWhatIsDown) {
  std::vector<Nic> cards = Cards();
  cards[4].state = Nic::State::kDown;
  EXPECT_EQ(Order(cards, {.device_pci = "0000:01:01.0"}),
            "beside numa other far virtual");
  for (Nic& card : cards) card.state = Nic::State::kDown;
  EXPECT_NE(Order(cards, {}).find("no network card is up: far,"),
            std::string::npos);
  EXPECT_EQ(Order({}, {}), "no network card is up");
}

TEST(NicChoice, KeepsTheOrderGivenWhereNothingIsKnown) {
  EXPECT_EQ(Order({{.name = "b"}, {.name = "a"}}, {}), "b a");
  EXPECT_EQ(Order({{.name = "b"}, {.name = "a"}}, {.local_rank = 1}), "a b");
}

TEST(NicChoice, KnowsTheWiringOfInstanceTypes) {
  EXPECT_EQ(WiredNic("trn2.48xlarge", 0), "0000:c9:00.0");
  EXPECT_EQ(WiredNic("trn2.48xlarge", 15), "0000:f6:00.0");
  EXPECT_EQ(WiredNic("trn2.48xlarge", 16), "");
  EXPECT_EQ(WiredNic("trn2.48xlarge", -1), "");
  EXPECT_EQ(WiredNic("trn1.32xlarge", 0), "");
  EXPECT_EQ(WiredNic("", 0), "");
  // However close another one is.
  std::vector<Nic> cards = Cards();
  cards.push_back({.name = "wired", .pci = "0000:c9:00.0"});
  const std::string order = Order(cards, {.device_pci = "0000:01:01.0",
                                          .instance_type = "trn2.48xlarge",
                                          .device = 0});
  EXPECT_EQ(order, "wired same beside numa other far virtual");
}

}  // namespace
}  // namespace trnccl
