// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/conformance_forms.h"

#include <memory>
#include <utility>

#include "absl/status/statusor.h"

namespace trnccl {

FabricOptions Over(const std::string& provider, FabricProtocol protocol) {
  FabricOptions options;
  options.port.provider = provider;
  options.port.protocol = protocol;
  options.slice_bytes = 256 << 10;
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
