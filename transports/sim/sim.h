// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A transport for tests of everything above: endpoints in a network whose time
// is virtual and whose faults are drawn from a seed (transports/sim/
// sim_network.h). Its traits are options, so that whatever other transports are
// to those above, this can be. Not for speed: each call takes the network's
// lock, a payload for several peers is copied for each.
//
// Thread rule: that of Transport.
//
//   auto network = std::make_shared<SimNetwork>(seed, SimWeather{});
//   auto transport = MakeSimTransport({.network = network});
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "transports/doorbell.h"
#include "transports/sim/sim_network.h"
#include "transports/transport.h"

namespace trnccl {

struct SimOptions {
  std::shared_ptr<SimNetwork> network;
  std::string_view name = "sim";
  SimLinkForm form;           // alike on all ranks, as what follows
  bool by_reference = false;  // as Traits::by_reference
  bool any_memory = false;    // as Traits::any_memory
  // Rung by peers while this rank sleeps; null: this rank never sleeps.
  const Doorbell* doorbell = nullptr;
};

std::unique_ptr<Transport> MakeSimTransport(const SimOptions& options);

}  // namespace trnccl
