// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The transport between nodes: libfabric's reliable datagrams (RDM), over EFA
// on AWS and over TCP anywhere. Its messages leave the sender's memory as they
// travel, and long ones arrive in memory that the receiver named, the caller's
// own where it can be.
//
// All transports of a process share one port: endpoints, their memory and the
// one listening socket. A port that's given by FabricOptions instead belongs to
// those who were given it; tests make several ranks of one process that way.
//
// A peer that can't be reached is noticed by the first message to it, not by
// Connect(): connections are made as they're needed, so that a job of thousands
// of ranks has some tens a rank.
//
// Thread rule: that of Transport. The port has one lock, which is contended
// only where several threads of a process drive transports of their own.
//
//   ASSIGN_OR_RETURN(auto transport, MakeFabricTransport({.doorbell = bell}));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transports/doorbell.h"
#include "transports/transport.h"

namespace trnccl {

// How a long message's payload travels.
enum class FabricProtocol : uint8_t {
  kAuto,    // by what the provider is good at
  kTagged,  // as a tagged message, into a receive that was posted for it
  kWrite,   // written into memory that the receiver published
};

namespace fabric {

struct PortOptions {
  std::string library;   // "": the system's libfabric.so.1
  std::string provider;  // "": the best there is
  FabricProtocol protocol = FabricProtocol::kAuto;
  // Adapters (libfabric's domains; of IP, network interfaces), best first, and
  // no others. Empty: by the next two.
  std::vector<std::string> adapters;
  // Where addresses are those of IP: this machine's own, best first. Others are
  // taken only where none of these is there.
  std::vector<std::string> addresses;
  // Places on the PCI bus, "0000:c9:00.0", best first, of adapters that have
  // one. Others come last.
  std::vector<std::string> pci;
  // Adapters used at once, at most; 0: one, or, of those that don't speak IP,
  // as many as there are for each of the ranks that share them.
  int rails = 1;
  int sharers = 1;
  // Whether memory of Neuron devices may be registered: needs a provider that
  // reaches it, and remote writes.
  bool device_memory = false;
  // The longest message that's sent without the receiver's word; 0: by the
  // provider.
  size_t eager_bytes = 0;

  // Also providers that don't leave the machine, for tests: nodes may be hosts.
  bool within_machine = false;

  bool operator==(const PortOptions&) const = default;
};

class Port;

}  // namespace fabric

struct FabricOptions {
  fabric::PortOptions port;
  // Instead of the process's port for these options.
  std::shared_ptr<fabric::Port> own_port;
  size_t slice_bytes = 0;  // the longest message; 0: by the provider
  const Doorbell* doorbell = nullptr;
  uint32_t first_sequence = 0;  // alike on all ranks; for tests of its wrap
};

absl::StatusOr<std::unique_ptr<Transport>> MakeFabricTransport(
    const FabricOptions& options);

// A port of one's own.
absl::StatusOr<std::shared_ptr<fabric::Port>> OpenFabricPort(
    const fabric::PortOptions& options);

}  // namespace trnccl
