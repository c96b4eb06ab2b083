// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/host_facts.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <random>
#include <thread>

namespace trnccl {
namespace {

HostFacts MadeUp() {
  return {.host_id = "node a/\"x\"\n\xff",
          .machine = "d1a-7f",
          .hostname = "node a",
          .pid = 4711,
          .cpus = {0, 1, 2, 3},
          .cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}},
          .l3_groups = {{0, 1, 2, 3, 4, 5, 6, 7}},
          .nics = {{.name = "eth0", .pci = "0000:00:05.0", .mbps = 25000},
                   {.name = "rdma0", .state = Nic::State::kDown}},
          .met_at = {"10.1.0.1"},
          .addresses = {"10.1.0.1", "fd01::1"}};
}

constexpr char kPlain[] =
    "trnccl-host 3\nhost_id a\nmachine m\nhostname b\npid 1\ncpus 0-1\ncores "
    "0;1\n"
    "l3_groups 0-1\nnics e,0000:00:05.0,10,up\nmet_at 10.0.0.1\n"
    "addresses 10.0.0.1,fd01::1\n";

TEST(HostFacts, TellOfThisProcess) {
  const absl::StatusOr<HostFacts> facts = GatherHostFacts("");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->pid, getpid());
  EXPECT_FALSE(facts->cpus.empty());
  EXPECT_EQ(facts->host_id.rfind(facts->hostname + "/", 0), 0u);
  EXPECT_GT(facts->host_id.size(), facts->hostname.size() + 1);
  const auto again = GatherHostFacts("");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*facts, *again);
}

TEST(HostFacts, TakeTheOverrideForTheHostId) {
  const auto facts = GatherHostFacts("node-7");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->host_id, "node-7");
  // Which doesn't give it processors of its own.
  const auto plain = GatherHostFacts("");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(facts->machine, plain->machine);
  EXPECT_EQ(plain->host_id, plain->hostname + "/" + plain->machine);
}

TEST(HostFacts, TellOfTheCallingThreadsProcessors) {
  const auto facts = GatherHostFacts("");
  ASSERT_TRUE(facts.ok()) << facts.status();
  const int last = facts->cpus.back();
  std::thread([last] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(last, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    const auto bound = GatherHostFacts("");
    ASSERT_TRUE(bound.ok()) << bound.status();
    EXPECT_EQ(bound->cpus, CpuSet{last});
  }).join();
}

TEST(HostFacts, ComeBackFromTheirText) {
  for (const HostFacts& facts : {MadeUp(), HostFacts()}) {
    const auto back = ParseHostFacts(HostFactsText(facts));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, facts);
  }
  const auto real = GatherHostFacts("");
  ASSERT_TRUE(real.ok()) << real.status();
  const auto back = ParseHostFacts(HostFactsText(*real));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, *real);
}

TEST(HostFacts, RefuseOtherVersionsByName) {
  std::string text = kPlain;
  text[12] = '1';
  const auto facts = ParseHostFacts(text);
  ASSERT_FALSE(facts.ok());
  EXPECT_NE(facts.status().message().find("version \"1\" isn't 3"),
            absl::string_view::npos)
      << facts.status();
}

TEST(HostFacts, RefuseTextThatTheyDidNotWrite) {
  const std::string plain = kPlain;
  ASSERT_TRUE(ParseHostFacts(plain).ok());
  for (size_t length = 0; length < plain.size(); ++length) {
    EXPECT_FALSE(ParseHostFacts(plain.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(ParseHostFacts(plain + "\n").ok());
  EXPECT_FALSE(ParseHostFacts(plain + "pid 1\n").ok());
  EXPECT_FALSE(ParseHostFacts(plain + plain).ok());
  EXPECT_FALSE(ParseHostFacts(plain + std::string(1 << 20, '\n')).ok());
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"pid 1", "pid 01"},
           {"pid 1", "pid  1"},
           {"pid 1", "pid x"},
           {"pid 1", "pid 99999999999999999999"},
           {"cpus 0-1", "cpus 0,1"},
           {",10,", ",010,"},
           {",10,", ",-10,"},
           {",up", ",sideways"},
           {"00:05.0", "00:05"},
           {"nics e", "nics e;"},
           {"met_at 1", "met_at ,1"},
           {"met_at 10.0.0.1", "met_at eth0"},
           {"fd01::1", "fd01::1 "},
           {"fd01::1", "fd01::1," + std::string(50, '1')},
           {"cpus 0-1", "cpus 0-16384"},
           {"host_id a", "host_id \\q"},
           {"host_id a", "host_id \\x61"},
           {"host_id a", "host_id " + std::string(5000, 'a')},
           {"hostname b", "hostname\tb"}}) {
    std::string text = plain;
    text.replace(text.find(from), from.size(), to);
    EXPECT_FALSE(ParseHostFacts(text).ok()) << to;
  }
}

TEST(HostFacts, SurviveAnyBytes) {
  constexpr uint32_t kSeed = 1;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  const std::string plain = HostFactsText(MadeUp());
  for (int i = 0; i < 2000; ++i) {
    std::string text = plain;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0;
         --changes) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    const auto facts = ParseHostFacts(text);
    if (!facts.ok()) continue;
    EXPECT_EQ(HostFactsText(*facts), text);
  }
}

}  // namespace
}  // namespace trnccl
