// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The test provider (test_provider/README.md) for tests of the transport: its
// settings, and two ranks of one or more communicators over it, each rank with
// one port, as if it were a process.
//
// Thread rule: one thread; settings are the process's environment.
//
//   Pair pair({.form = OverManners(FabricProtocol::kWrite),
//              .settings = {{{}, {{"FAIL", "tx:3"}}}}});
//   pair[0].Send({&link, 1}, {.bytes = 8});
//   pair.Until([&] { return !pair[0].Progress().ok(); });
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transports/conformance/team.h"
#include "transports/fabric/fabric.h"
#include "transports/transport.h"

namespace trnccl {

// By the name that follows MANNERS_.
using MannersSettings = std::map<std::string, std::string>;

// Before libfabric looks for providers: it does so once.
void NameTheTestProvider();

// As long as this lives, which is to span the opening of ports.
class ScopedManners {
 public:
  explicit ScopedManners(const MannersSettings& settings);
  ~ScopedManners();
  ScopedManners(const ScopedManners&) = delete;

 private:
  const MannersSettings settings_;
};

FabricOptions OverManners(FabricProtocol protocol);

// For the conformance suite; slow.
Subject Manners(const std::string& name, const MannersSettings& settings,
                const FabricOptions& form);

class Pair {
 public:
  struct Options {
    FabricOptions form;
    std::array<MannersSettings, 2> settings = {};  // by rank
    std::array<int, 2> rails = {1, 1};
    std::array<size_t, 2> slice_bytes = {};  // 0: as in `form`
    int communicators = 1;
    int lanes = 1;
  };
  explicit Pair(const Options& options);

  Transport& at(int rank, int communicator = 0) {
    return *transports_[static_cast<size_t>(communicator)]
                       [static_cast<size_t>(rank)];
  }
  Transport& operator[](int rank) { return at(rank); }
  std::shared_ptr<fabric::Port> port(int rank) {
    return ports_[static_cast<size_t>(rank)];
  }
  // To the other rank; alike on both, of whom one may be destroyed.
  LinkId link(int lane = 0) {
    return at(transports_[0][0] != nullptr ? 0 : 1).Link(0, lane);
  }
  // All of the rank's communicators, and its port.
  void Destroy(int rank);

  // Both ranks and all communicators make progress; false if `done` never
  // comes true. Errors are for `done` to look for.
  bool Until(const std::function<bool()>& done);
  // The next message that comes to `rank` on the communicator, or null.
  const Incoming* Await(int rank, int communicator = 0);
  // A short message arrives whole there, from the other rank.
  bool Works(int rank, int communicator);

 private:
  std::array<std::shared_ptr<fabric::Port>, 2> ports_;
  std::vector<std::array<std::unique_ptr<Transport>, 2>> transports_;
};

}  // namespace trnccl
