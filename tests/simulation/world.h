// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The ranks of a scenario in one thread: whole communicators, with the
// library's own planner, executor, point-to-point and health, over a simulated
// network, by whose time their deadlines run. Nothing happens but by calls.
//
// Thread rule: thread-compatible; one in a process at a time, since it sets the
// process's clock.
//
//   SimWorld world(scenario);
//   world[2].DriveOnce();
//   world.network().Kill(1);
#pragma once

#include <memory>
#include <vector>

#include "ccl/communicator/communicator.h"
#include "ccl/planner/planner.h"
#include "ccl/progress/progress_thread.h"
#include "tests/simulation/rank_calls.h"
#include "tests/simulation/scenario.h"
#include "transports/sim/sim_network.h"

namespace trnccl {

class SimWorld {
 public:
  explicit SimWorld(const Scenario& scenario);
  ~SimWorld() { End(); }
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  int ranks() const { return static_cast<int>(communicators_.size()); }
  Communicator& operator[](int rank) {
    return *communicators_[static_cast<size_t>(rank)];
  }
  // A rank destroys its communicator while the others go on.
  void Destroy(int rank) { communicators_[static_cast<size_t>(rank)].reset(); }
  // Destroys all communicators, after which calls may be freed that never
  // ended. Nothing else works from here on.
  void End();

  SimNetwork& network() { return *network_; }
  CallOracle& oracle() { return *oracle_; }

 private:
  Topology TopologyOf(int rank) const;
  void MakeOracle(const Communicator::Parts& parts);

  Scenario scenario_;
  std::shared_ptr<SimNetwork> network_;
  // Communicators leave it when they end.
  std::vector<std::unique_ptr<ProgressThread>> drivers_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::unique_ptr<Planner> planner_;
  std::unique_ptr<CallOracle> oracle_;
};

}  // namespace trnccl
