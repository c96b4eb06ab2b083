// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/conformance/conformance.h"
#include "transports/sim/sim.h"

namespace trnccl {
namespace {

Subject Sim(const std::string& name, const SimWeather& weather,
            const SimOptions& options) {
  Subject subject;
  subject.name = name;
  subject.lazy = true;
  subject.make = [options, network = std::make_shared<SimNetwork>(
                               /*seed=*/1, weather)](const RankOptions& rank) {
    SimOptions mine = options;
    mine.network = network;
    mine.doorbell = rank.doorbell;
    return MakeSimTransport(mine);
  };
  return subject;
}

constexpr SimWeather kCalm;
constexpr SimWeather kRough{
    .delay_ns = 20'000, .lost_per_1000 = 50, .resend_ns = 100'000};

INSTANTIATE_TEST_SUITE_P(
    Sim, Conformance,
    ::testing::Values(Sim("one_at_a_time", kCalm, {.by_reference = true}),
                      Sim("late", kRough,
                          {.form = {.capacity = 3, .inline_bytes = 64},
                           .by_reference = true}),
                      Sim("copies", kRough, {.form = {.slice_bytes = 256}}),
                      Sim("delivers", kRough,
                          {.form = {.capacity = 32, .delivers = true},
                           .by_reference = true})),
    SubjectName);

}  // namespace
}  // namespace trnccl
