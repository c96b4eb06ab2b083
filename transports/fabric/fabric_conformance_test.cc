// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The suite over the providers that every machine has, of the system's
// libfabric or of another (conformance_forms.h).
#include <vector>

#include "transports/conformance/conformance.h"
#include "transports/fabric/conformance_forms.h"

namespace trnccl {
namespace {

FabricOptions Short() {
  FabricOptions options = OverLoopback(TcpProvider(), FabricProtocol::kTagged);
  options.port.eager_bytes = 16;
  return options;
}

Subject Lossy(Subject subject) {
  subject.lossy = true;
  return subject;
}

std::vector<Subject> Subjects() {
  const std::string tcp = TcpProvider();
  std::vector<Subject> subjects = {
      Fabric("tcp_tagged", OverLoopback(tcp, FabricProtocol::kTagged)),
      Fabric("tcp_written", OverLoopback(tcp, FabricProtocol::kWrite)),
      Fabric("tcp_long", Short()),
      Lossy(Slow(
          Fabric("rxd", OverLoopback("udp;ofi_rxd", FabricProtocol::kAuto)))),
  };
  if (!LibraryUnderTest().empty()) return subjects;
  // In release 2.5 shm crashes inside of its queue with several long messages
  // between endpoints of one process, which only tests have; and one run of rxm
  // in some hundred ends by a signal, of which the cause isn't known. There,
  // "tcp" has an endpoint of its own, and nobody needs rxm.
  subjects.push_back(
      Slow(Fabric("rxm", OverLoopback("tcp;ofi_rxm", FabricProtocol::kAuto))));
  FabricOptions shm = Over("shm", FabricProtocol::kAuto);
  shm.port.within_machine = true;
  subjects.push_back(Fabric("shm", shm));
  return subjects;
}

INSTANTIATE_TEST_SUITE_P(Fabric, Conformance, ::testing::ValuesIn(Subjects()),
                         SubjectName);

}  // namespace
}  // namespace trnccl
