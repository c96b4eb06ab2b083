// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/simulation/world.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "ccl/base/clock.h"
#include "ccl/planner/model_file.h"
#include "ccl/progress/sleepers.h"

namespace trnccl {
namespace {

constexpr uint32_t kCookie = 0x51300000;

const SimNetwork* clock_network = nullptr;

int64_t SimNowNs() { return clock_network->now_ns(); }

Sleepers* ProcessSleepers() {
  const absl::StatusOr<Sleepers*> sleepers = Sleepers::OfProcess();
  TRNCCL_CHECK(sleepers.ok());
  return *sleepers;
}

SimOptions In(const std::shared_ptr<SimNetwork>& network, SimOptions options) {
  options.network = network;
  return options;
}

}  // namespace

Topology SimWorld::TopologyOf(int rank) const {
  std::vector<HostFacts> hosts(static_cast<size_t>(scenario_.ranks));
  for (size_t node = 0; node < scenario_.grid.nodes.size(); ++node) {
    for (const int member : scenario_.grid.nodes[node]) {
      HostFacts& host = hosts[static_cast<size_t>(member)];
      host.host_id = absl::StrCat("node", node);
      host.machine = host.host_id;
      host.hostname = host.host_id;
      host.pid = 1000 + member;
    }
  }
  return MakeTopology(std::move(hosts), rank);
}

SimWorld::SimWorld(const Scenario& scenario)
    : scenario_(scenario),
      network_(std::make_shared<SimNetwork>(scenario.seed, scenario.weather)) {
  clock_network = network_.get();
  SetClockForTest(SimNowNs);
  std::vector<Communicator::Parts> parts(static_cast<size_t>(scenario.ranks));
  TransportSet::ConnectRequest request;
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    Communicator::Parts& mine = parts[static_cast<size_t>(rank)];
    mine.membership = {.rank = rank, .ranks = scenario.ranks};
    mine.name = "simulated";
    mine.settings = scenario.settings;
    mine.topology = TopologyOf(rank);
    mine.cookie = kCookie;
    mine.model = DefaultModel();
    mine.first_sequence = scenario.first_sequence;
    mine.collective_lanes = static_cast<int>(scenario.settings.lanes);
    mine.sleepers = ProcessSleepers();
    drivers_.push_back(ProgressThread::WithoutThread(mine.sleepers));
    mine.progress_thread = drivers_.back().get();
    std::vector<TransportSet::Brought> wires(2);
    wires[0] = {.transport = MakeSimTransport(In(network_, scenario.within)),
                .reach = TransportSet::Reach::kNode};
    wires[1] = {.transport = MakeSimTransport(In(network_, scenario.across))};
    mine.transports = TransportSet::Of(
        {.membership = mine.membership,
         .lanes = mine.collective_lanes + Communicator::kOwnLanes},
        std::move(wires));
    request.peers.push_back(
        {.address = mine.transports->address(),
         .host = mine.topology.hosts[static_cast<size_t>(rank)].host_id});
  }
  size_t slice_bytes = SIZE_MAX;
  for (Communicator::Parts& mine : parts) {
    const absl::Status connected = mine.transports->Connect(request);
    TRNCCL_CHECK(connected.ok());
    slice_bytes = std::min(slice_bytes, mine.transports->slice_bytes());
  }
  for (Communicator::Parts& mine : parts) mine.slice_bytes = slice_bytes;
  // A rank that stays.
  MakeOracle(parts[scenario.fault.rank == 0 ? 1 : 0]);
  for (Communicator::Parts& mine : parts) {
    auto communicator = Communicator::Create(std::move(mine));
    TRNCCL_CHECK(communicator.ok());
    communicators_.push_back(*std::move(communicator));
  }
}

void SimWorld::MakeOracle(const Communicator::Parts& parts) {
  auto planner = Planner::Create({.membership = parts.membership,
                                  .grid = &scenario_.grid,
                                  .routes = &parts.transports->routes(),
                                  .settings = &scenario_.settings,
                                  .model = parts.model,
                                  .slice_bytes = parts.slice_bytes,
                                  .lanes = parts.collective_lanes});
  TRNCCL_CHECK(planner.ok());
  planner_ = *std::move(planner);
  oracle_ = std::make_unique<CallOracle>(
      CallOracle::Options{.planned = parts.membership,
                          .grid = &scenario_.grid,
                          .determinism = scenario_.settings.determinism,
                          .planner = planner_.get(),
                          .script = &scenario_.script});
}

void SimWorld::End() {
  planner_.reset();
  communicators_.clear();
  SetClockForTest(nullptr);
}

}  // namespace trnccl
