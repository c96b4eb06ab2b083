// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What goes wrong becomes an error that says where, with whom and why, on the
// transport that it concerns, and nothing else suffers.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transports/fabric/conformance_forms.h"
#include "transports/fabric/fabric_transport.h"
#include "transports/fabric/manners.h"

namespace trnccl {
namespace {

constexpr size_t kLong = size_t{200} << 10;

// Before anything else asks libfabric.
const bool provider_is_named = (NameTheTestProvider(), true);

void ExpectText(const absl::Status& status,
                const std::vector<std::string>& parts) {
  EXPECT_FALSE(status.ok());
  for (const std::string& part : parts)
    EXPECT_NE(status.ToString().find(part), std::string::npos)
        << part << " isn't in: " << status;
}

bool SendOne(Transport& transport, LinkId link, size_t bytes) {
  std::byte* slice = transport.Reserve({&link, 1}, bytes);
  if (slice == nullptr) return false;
  std::memset(slice, 0x5a, bytes);
  return transport.Send({&link, 1}, {.bytes = bytes});
}

TEST(FabricFaults, EachCallThatOpensIsNamed) {
  const struct {
    const char* fault;
    std::vector<std::string> said;
  } kCases[] = {
      {"fabric", {"fi_fabric"}},     {"domain", {"fi_domain"}},
      {"cq", {"fi_cq_open"}},        {"av", {"fi_av_open"}},
      {"endpoint", {"fi_endpoint"}}, {"bind:1", {"fi_ep_bind"}},
      {"bind:2", {"fi_ep_bind"}},    {"enable", {"fi_enable"}},
      {"getname", {"fi_getname"}},   {"mr", {"fi_mr_reg"}},
      {"post", {"fi_recv"}},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.fault);
    const ScopedManners manners(MannersSettings{{"FAIL", test.fault}});
    const auto port = OpenFabricPort(OverManners(FabricProtocol::kWrite).port);
    ExpectText(port.status(), test.said);
    ExpectText(port.status(), {"manners", "manners0-rdm"});
  }
}

TEST(FabricFaults, AProviderThatOffersNothingIsNamed) {
  const ScopedManners manners(MannersSettings{{"FAIL", "getinfo"}});
  const auto port = OpenFabricPort(OverManners(FabricProtocol::kWrite).port);
  EXPECT_EQ(port.status().code(), absl::StatusCode::kNotFound);
  ExpectText(port.status(), {"manners", "TRNCCL_FABRIC_PROVIDER"});
}

TEST(FabricFaults, AnAddressThatIsRefusedNamesItsRank) {
  auto peer = OpenFabricPort(OverManners(FabricProtocol::kWrite).port);
  ASSERT_TRUE(peer.ok()) << peer.status();
  const ScopedManners manners(MannersSettings{{"FAIL", "av_insert"}});
  FabricOptions form = OverManners(FabricProtocol::kWrite);
  auto port = OpenFabricPort(form.port);
  ASSERT_TRUE(port.ok()) << port.status();
  form.own_port = *port;
  auto mine = MakeFabricTransport(form);
  form.own_port = *peer;
  auto theirs = MakeFabricTransport(form);
  ASSERT_TRUE(mine.ok() && theirs.ok());
  const absl::Status status = (*mine)->Connect(
      {.peers = {{.rank = 7, .address = (*theirs)->traits().address}}});
  ExpectText(status, {"rank 7", "fi_av_insert", "manners0-rdm"});
}

// One fault of a completion, and what the rank that suffers it says.
struct CompletionCase {
  const char* name;
  FabricProtocol protocol;
  size_t bytes;
  int rank;  // that suffers
  const char* fault;
  const char* said;
  bool breaks;  // all that the port has
};

class CompletionFaults : public ::testing::TestWithParam<CompletionCase> {};

TEST_P(CompletionFaults, NameRankPeerAndCauseAndSpareOthers) {
  const CompletionCase& test = GetParam();
  Pair::Options options{.form = OverManners(test.protocol), .communicators = 2};
  options.settings[static_cast<size_t>(test.rank)] = {{"FAIL", test.fault}};
  Pair pair(options);
  ASSERT_TRUE(SendOne(pair[0], pair.link(), test.bytes));
  absl::Status status;
  EXPECT_TRUE(pair.Until([&] {
    static_cast<void>(pair[1].Peek(pair.link(), nullptr));
    status = pair[test.rank].Progress();
    return !status.ok();
  }));
  ExpectText(status, {"rank " + std::to_string(test.rank), test.said,
                      "manners: injected: Unresponsive remote"});
  if (!test.breaks)
    ExpectText(status, {"with rank " + std::to_string(1 - test.rank)});
  EXPECT_EQ(pair[test.rank].Progress(), status) << "errors stay";
  EXPECT_EQ(pair.Works(1 - test.rank, 1), !test.breaks);
  EXPECT_EQ(pair.at(test.rank, 1).Progress().ok(), !test.breaks);
}

INSTANTIATE_TEST_SUITE_P(
    Each, CompletionFaults,
    ::testing::Values(
        CompletionCase{"short_send", FabricProtocol::kWrite, 8, 0, "tx:1",
                       "sending message 0 (8 bytes) failed", false},
        CompletionCase{"announcement", FabricProtocol::kTagged, kLong, 0,
                       "tx:1", "sending message 0", false},
        CompletionCase{"tagged_payload", FabricProtocol::kTagged, kLong, 0,
                       "tx:2", "sending message 0 (204800 bytes)", false},
        CompletionCase{"write", FabricProtocol::kWrite, kLong, 0, "tx:2",
                       "sending message 0 (204800 bytes)", false},
        CompletionCase{"ready", FabricProtocol::kWrite, kLong, 1, "tx:1",
                       "asking for message 0", false},
        CompletionCase{"packet", FabricProtocol::kWrite, 8, 1, "rx:1",
                       "receiving a packet", true},
        CompletionCase{"tagged_landing", FabricProtocol::kTagged, kLong, 1,
                       "rx:2", "receiving message 0 (204800 bytes)", false},
        CompletionCase{"written_landing", FabricProtocol::kWrite, kLong, 1,
                       "rx:2", "receiving message 0 (204800 bytes)", false}),
    [](const auto& test) { return test.param.name; });

TEST(FabricFaults, AConnectionThatEndsAmidAPacketCostsNothingElse) {
  Pair::Options options{.form = OverManners(FabricProtocol::kTagged),
                        .communicators = 2};
  options.settings[1] = {{"FAIL", "reset:1"}};
  Pair pair(options);
  ASSERT_TRUE(SendOne(pair[0], pair.link(), 8));
  EXPECT_TRUE(pair.Works(0, 1));
  EXPECT_TRUE(pair.Works(1, 1));
  EXPECT_EQ(pair[1].Peek(pair.link(), nullptr), nullptr);
}

TEST(FabricFaults, APostThatFailsNamesItsPeer) {
  Pair::Options options{.form = OverManners(FabricProtocol::kWrite)};
  // The receives come first.
  options.settings[0] = {{"FAIL", "post:33+"}};
  Pair pair(options);
  ASSERT_TRUE(SendOne(pair[0], pair.link(), 8));
  ExpectText(pair[0].Progress(), {"rank 0 with rank 1", "sending message 0"});
}

TEST(FabricFaults, APeerThatIsGoneIsNamedByWhatIsSentToIt) {
  for (const auto protocol :
       {FabricProtocol::kWrite, FabricProtocol::kTagged}) {
    Pair pair({.form = OverManners(protocol)});
    ASSERT_TRUE(pair.Works(1, 0));
    pair.Destroy(1);
    ASSERT_TRUE(SendOne(pair[0], pair.link(), 8));
    EXPECT_TRUE(pair.Until([&] { return !pair[0].Progress().ok(); }));
    ExpectText(pair[0].Progress(),
               {"rank 0 with rank 1", "sending message 1 (8 bytes) failed"});
  }
}

class NotReady : public ::testing::TestWithParam<const char*> {};

// Its queue is far shorter than what's sent, and it makes no call meanwhile.
TEST_P(NotReady, NothingIsLostForAReceiverThatSleepsLong) {
  constexpr int kLanes = 16;
  constexpr uint32_t kEach = 8;
  for (const auto protocol :
       {FabricProtocol::kWrite, FabricProtocol::kTagged}) {
    const MannersSettings settings = {
        {"RNR", GetParam()}, {"RX_SIZE", "8"}, {"TX_SIZE", "16"}};
    Pair pair({.form = OverManners(protocol),
               .settings = {settings, settings},
               .lanes = kLanes});
    for (uint32_t i = 0; i < kEach; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const LinkId link = pair.link(lane);
        std::byte* slice = pair[0].Reserve({&link, 1}, 1000);
        ASSERT_NE(slice, nullptr);
        std::memset(slice, static_cast<int>(i) * kLanes + lane, 1000);
        ASSERT_TRUE(pair[0].Send({&link, 1}, {.bytes = 1000}));
      }
    }
    for (int i = 0; i < 2000; ++i) ASSERT_TRUE(pair[0].Progress().ok());
    for (uint32_t i = 0; i < kEach; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const Incoming* message = nullptr;
        ASSERT_TRUE(pair.Until([&] {
          message = pair[1].Peek(pair.link(lane), nullptr);
          return message != nullptr;
        })) << pair[0].Progress()
            << pair[1].Progress();
        ASSERT_EQ(message->bytes, 1000u);
        ASSERT_EQ(message->data[999],
                  static_cast<std::byte>(i * kLanes + lane));
        pair[1].Release(pair.link(lane));
      }
    }
    EXPECT_TRUE(pair[0].Progress().ok());
  }
}

INSTANTIATE_TEST_SUITE_P(InBothModes, NotReady,
                         ::testing::Values("retry", "error"),
                         [](const auto& test) { return test.param; });

// Headers that a broken peer may send.
std::vector<fabric::WireHeader> Lies() {
  using fabric::WireHeader;
  using fabric::WireKind;
  return {
      WireHeader{.source = 9},
      WireHeader{.lane = 5},
      WireHeader{.kind = static_cast<WireKind>(77)},
      WireHeader{.kind = WireKind::kPayload},
      WireHeader{.sequence = fabric::kWindow},
      WireHeader{.sequence = 0xffffffff},
      WireHeader{.bytes = 8},
      WireHeader{.bytes = UINT64_MAX},
      WireHeader{.kind = WireKind::kAnnounce, .bytes = UINT64_MAX},
      WireHeader{.kind = WireKind::kAnnounce, .bytes = 0},
      WireHeader{.released = 1, .kind = WireKind::kCredit},
      WireHeader{.released = 0x7fffffff, .kind = WireKind::kCredit},
      WireHeader{.kind = WireKind::kReady, .stripes = 0, .bytes = 8},
      WireHeader{.kind = WireKind::kReady, .stripes = 255, .bytes = 8},
      WireHeader{.kind = WireKind::kReady, .stripes = 1, .bytes = UINT64_MAX},
      WireHeader{.sequence = 1, .kind = WireKind::kReady, .stripes = 1},
      WireHeader{
          .sequence = 0x7fffffff, .kind = WireKind::kReady, .stripes = 1},
      WireHeader{.kind = WireKind::kReady, .stripes = 1, .landing = UINT64_MAX},
  };
}

TEST(FabricFaults, LiesOfAPeerAreErrorsThatNameItAndSpareOthers) {
  for (const auto protocol :
       {FabricProtocol::kWrite, FabricProtocol::kTagged}) {
    for (const fabric::WireHeader& lie : Lies()) {
      SCOPED_TRACE(testing::Message()
                   << "kind " << static_cast<int>(lie.kind) << " sequence "
                   << lie.sequence << " bytes " << lie.bytes << " stripes "
                   << static_cast<int>(lie.stripes));
      Pair pair({.form = OverManners(protocol), .communicators = 2});
      // With what a kReady has to have, where it's written to.
      std::vector<std::byte> body;
      if (lie.kind == fabric::WireKind::kReady && lie.stripes == 1 &&
          protocol == FabricProtocol::kWrite)
        body.resize(sizeof(fabric::WireTarget));
      static_cast<fabric::FabricTransport&>(pair[0]).SendRaw(pair.link(), lie,
                                                             body);
      ASSERT_TRUE(pair.Until([&] { return !pair[1].Progress().ok(); }));
      ExpectText(pair[1].Progress(), {"rank 1", "rank "});
      EXPECT_EQ(pair[1].Peek(pair.link(), nullptr), nullptr);
      EXPECT_TRUE(pair.Works(1, 1));
    }
  }
}

TEST(FabricFaults, StrangersPacketsAreLeftAlone) {
  Pair pair({.form = OverManners(FabricProtocol::kWrite)});
  auto& sender = static_cast<fabric::FabricTransport&>(pair[0]);
  for (int i = 0; i < 100; ++i) {
    sender.SendRaw(pair.link(), {.cookie = 0xdeadbeef});
    sender.SendRaw(pair.link(), {.endpoint = 0xffff0000});
    sender.SendRaw(pair.link(), {.endpoint = 0x00010007});
  }
  EXPECT_TRUE(pair.Works(1, 0));
  EXPECT_TRUE(pair.Works(0, 0));
}

void ExpectAForkedChildIsTold(const FabricOptions& form) {
  Pair pair({.form = form});
  ASSERT_TRUE(pair.Works(1, 0));
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status status = pair[0].Progress();
    const bool told = status.code() == absl::StatusCode::kFailedPrecondition &&
                      status.ToString().find("forked") != std::string::npos &&
                      status.ToString().find("rank 0") != std::string::npos;
    const LinkId link = pair.link();
    const bool refused = pair[0].Reserve({&link, 1}, 8) == nullptr;
    pair.Destroy(0);
    pair.Destroy(1);
    _exit(told && refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(pair.Works(1, 0));
  EXPECT_TRUE(pair.Works(0, 0));
}

TEST(FabricFaults, AForkedChildIsToldAndItsParentGoesOn) {
  ExpectAForkedChildIsTold(OverManners(FabricProtocol::kWrite));
  ExpectAForkedChildIsTold(OverLoopback(TcpProvider(), FabricProtocol::kAuto));
}

}  // namespace
}  // namespace trnccl
