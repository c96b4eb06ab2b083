// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Messages whose receiver says what it expects: they arrive where it wants
// them, and whole, whatever overtakes what.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transports/conformance/player.h"
#include "transports/fabric/conformance_forms.h"
#include "transports/fabric/manners.h"

namespace trnccl {
namespace {

// Before anything else asks libfabric.
const bool provider_is_named = (NameTheTestProvider(), true);

struct Form {
  std::string name;
  FabricOptions options;
  MannersSettings settings;
  std::array<int, 2> rails = {1, 1};
  std::array<size_t, 2> slice_bytes = {};
};

Form OverTest(const std::string& name, FabricProtocol protocol,
              const MannersSettings& settings,
              std::array<int, 2> rails = {1, 1}) {
  return {name, OverManners(protocol), settings, rails};
}

Form OfUnevenSlices(const std::string& name, FabricProtocol protocol) {
  return {name,
          OverManners(protocol),
          {{"SEED", "13"}},
          {1, 1},
          {192 << 10, 256 << 10}};
}

Form OverTcp(const std::string& name, FabricProtocol protocol) {
  return {name, OverLoopback(TcpProvider(), protocol), {}, {1, 1}};
}

// One direction, with its receiver's memory.
struct Flow {
  Stream stream;
  uint64_t sent = 0;
  uint64_t received = 0;
  std::vector<std::byte> memory;
  std::unique_ptr<Region> region;
  Expected expected;
  bool said = false;  // what's expected of the next message
};

class Expectations : public ::testing::TestWithParam<Form> {
 protected:
  static constexpr uint64_t kMessages = 200;

  void SetUp() override {
    const Form& form = GetParam();
    pair_ = std::make_unique<Pair>(
        Pair::Options{.form = form.options,
                      .settings = {form.settings, form.settings},
                      .rails = form.rails,
                      .slice_bytes = form.slice_bytes});
    traits_ = (*pair_)[0].traits();
    ASSERT_EQ((*pair_)[1].traits().slice_bytes, traits_.slice_bytes);
    for (int rank = 0; rank < 2; ++rank) {
      Flow& flow = flows_[static_cast<size_t>(rank)];
      flow.stream = {.from = rank, .to = 1 - rank};
      flow.memory.resize(traits_.slice_bytes);
      auto region =
          (*pair_)[1 - rank].Register(flow.memory.data(), flow.memory.size());
      ASSERT_TRUE(region.ok()) << region.status();
      flow.region = *std::move(region);
    }
  }

  void Send(Flow& flow) {
    if (flow.sent == kMessages) return;
    const LinkId link = pair_->link();
    const size_t bytes = flow.stream.Bytes(flow.sent, traits_);
    Transport& from = (*pair_)[flow.stream.from];
    std::byte* slice = from.Reserve({&link, 1}, bytes);
    if (slice == nullptr) return;
    flow.stream.Fill(flow.sent, slice, bytes);
    from.Send({&link, 1},
              {.envelope = flow.stream.EnvelopeOf(flow.sent), .bytes = bytes});
    ++flow.sent;
  }

  // Nothing, what's true, a place of one's own, or what isn't true at all.
  void Say(Flow& flow) {
    flow.said = true;
    flow.expected = {.bytes = flow.stream.Bytes(flow.received, traits_)};
    if (random_() % 4 == 0)
      flow.expected.bytes = random_() % traits_.slice_bytes;
    if (random_() % 2 == 0) return;
    flow.expected.landing = flow.memory.data();
    flow.expected.region = flow.region.get();
  }

  void Receive(Flow& flow) {
    Transport& to = (*pair_)[flow.stream.to];
    if (!flow.said && random_() % 2 == 0) Say(flow);
    const Incoming* message =
        to.Peek(pair_->link(), flow.said ? &flow.expected : nullptr);
    if (message == nullptr) return;
    ASSERT_LT(flow.received, kMessages);
    ASSERT_EQ(flow.stream.Check(flow.received, *message, traits_), "");
    if (message->data == flow.memory.data()) ++landed_;
    to.Release(pair_->link());
    ++flow.received;
    flow.said = false;
  }

  std::unique_ptr<Pair> pair_;
  Traits traits_;
  std::array<Flow, 2> flows_;
  std::mt19937_64 random_;
  size_t landed_ = 0;
};

TEST_P(Expectations, MayBeTrueOrNotAndEveryMessageArrives) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  random_.seed(seed);
  while (flows_[0].received < kMessages || flows_[1].received < kMessages) {
    Flow& flow = flows_[random_() % 2];
    switch (random_() % 3) {
      case 0:
        Send(flow);
        break;
      case 1:
        if (flow.received < kMessages) Receive(flow);
        break;
      default: {
        const absl::Status status =
            (*pair_)[static_cast<int>(random_() % 2)].Progress();
        ASSERT_TRUE(status.ok()) << status;
      }
    }
    if (HasFatalFailure()) return;
  }
  const bool lands =
      GetParam().options.port.provider == "manners" ||
      GetParam().options.port.protocol == FabricProtocol::kTagged;
  EXPECT_EQ(landed_ > 0, lands);
}

constexpr auto kTagged = FabricProtocol::kTagged;
constexpr auto kWrite = FabricProtocol::kWrite;

INSTANTIATE_TEST_SUITE_P(
    Over, Expectations,
    ::testing::Values(
        OverTcp("tcp_tagged", kTagged), OverTcp("tcp_written", kWrite),
        OverTest("tagged", kTagged, {{"SEED", "1"}}),
        OverTest("tagged_held_long", kTagged, {{"SEED", "2"}, {"HOLD", "40"}}),
        OverTest("tagged_short", kTagged,
                 {{"SEED", "3"}, {"RX_SIZE", "4"}, {"TX_SIZE", "3"}}),
        OverTest("tagged_refusing", kTagged, {{"SEED", "4"}, {"EAGAIN", "70"}},
                 {2, 2}),
        OverTest("efa_written", kWrite, {{"SEED", "5"}, {"FABRIC", "efa"}}),
        OverTest("direct_held_long", kWrite, {{"SEED", "6"}, {"HOLD", "40"}}),
        OverTest("direct_not_ready", kWrite,
                 {{"SEED", "7"}, {"RNR", "error"}, {"RX_SIZE", "2"}}),
        OverTest("tagged_four_rails", kTagged, {{"SEED", "9"}, {"NICS", "4"}},
                 {4, 4}),
        OverTest("direct_four_rails", kWrite, {{"SEED", "10"}, {"NICS", "4"}},
                 {4, 4}),
        OverTest("direct_uneven_rails", kWrite, {{"SEED", "11"}, {"NICS", "4"}},
                 {4, 1}),
        OverTest("tagged_uneven_rails", kTagged,
                 {{"SEED", "12"}, {"NICS", "4"}}, {3, 2}),
        OfUnevenSlices("tagged_uneven_slices", kTagged),
        OfUnevenSlices("written_uneven_slices", kWrite)),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace trnccl
