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

// The libfabric that's tested: TRNCCL_TEST_LIBFABRIC, "" for the system's.
// Where that names a file that isn't there, all tests of this program are
// skipped.
std::string LibraryUnderTest();
// The provider of TCP's own endpoint for datagrams there.
std::string TcpProvider();

FabricOptions Over(const std::string& provider, FabricProtocol protocol);
// On this machine's loopback.
FabricOptions OverLoopback(const std::string& provider,
                           FabricProtocol protocol);

Subject Fabric(const std::string& name, const FabricOptions& form);

// One that sends fewer messages.
Subject Slow(Subject subject);

}  // namespace trnccl
