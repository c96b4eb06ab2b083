// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/conformance_forms.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace trnccl {

namespace {

class LibraryIsThere : public ::testing::Environment {
 public:
  void SetUp() override {
    const std::string library = LibraryUnderTest();
    if (!library.empty() && access(library.c_str(), R_OK) != 0)
      GTEST_SKIP() << library << " isn't there: see bin/setup";
  }
};

const ::testing::Environment* const library_is_there =
    ::testing::AddGlobalTestEnvironment(new LibraryIsThere);

}  // namespace

std::string LibraryUnderTest() {
  const char* path = std::getenv("TRNCCL_TEST_LIBFABRIC");
  return path == nullptr ? "" : path;
}

std::string TcpProvider() { return LibraryUnderTest().empty() ? "net" : "tcp"; }

FabricOptions Over(const std::string& provider, FabricProtocol protocol) {
  FabricOptions options;
  options.port.library = LibraryUnderTest();
  options.port.provider = provider;
  options.port.protocol = protocol;
  options.slice_bytes = 256 << 10;
  return options;
}

FabricOptions OverLoopback(const std::string& provider,
                           FabricProtocol protocol) {
  FabricOptions options = Over(provider, protocol);
  options.port.adapters = {"lo"};
  return options;
}

Subject Fabric(const std::string& name, const FabricOptions& form) {
  Subject subject;
  subject.name = name;
  subject.make = [form](const RankOptions& rank)
      -> absl::StatusOr<std::unique_ptr<Transport>> {
    FabricOptions options = form;
    options.doorbell = rank.doorbell;
    options.first_sequence = rank.first_sequence;
    absl::StatusOr<std::shared_ptr<fabric::Port>> port =
        OpenFabricPort(form.port);
    if (!port.ok()) return port.status();
    options.own_port = *std::move(port);
    return MakeFabricTransport(options);
  };
  subject.processes = true;
  subject.lazy = true;
  return subject;
}

Subject Slow(Subject subject) {
  subject.slow = true;
  return subject;
}

}  // namespace trnccl
