// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Forms of the fabric transport for the conformance suite: each rank has a port
// of its own, as if it were a process of its own.
//
// Thread rule: pure functions.
//
//   Fabric("net_tagged", Over("net", FabricProtocol::kTagged))
#pragma once

#include <string>

#include "transports/conformance/team.h"
#include "transports/fabric/fabric.h"

namespace trnccl {

// A provider on this machine's loopback, where it has one.
FabricOptions Over(const std::string& provider, FabricProtocol protocol);

Subject Fabric(const std::string& name, const FabricOptions& form);

// One that sends fewer messages.
Subject Slow(Subject subject);

}  // namespace trnccl
