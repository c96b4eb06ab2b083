// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What ranks tell of their hosts, and topology files: what is taken is exactly
// what would be written, and makes a topology.
#include <cstdint>

#include "ccl/base/check.h"
#include "ccl/topology/cpu_set.h"
#include "ccl/topology/host_facts.h"
#include "ccl/topology/network.h"
#include "ccl/topology/nics.h"
#include "ccl/topology/topology.h"
#include "tests/fuzz/input.h"

namespace trnccl {
namespace {

void TakeTopology(std::string_view text) {
  const auto hosts = ParseTopology(text);
  if (!hosts.ok() || hosts->empty()) return;
  const auto again = ParseTopology(TopologyText(*hosts));
  TRNCCL_CHECK(again.ok() && *again == *hosts);
  const int rank = static_cast<int>(hosts->size()) - 1;
  const Topology topology = MakeTopology(*hosts, rank);
  static_cast<void>(TopologyJson(topology));
  static_cast<void>(RanksPerCore(topology));
  static_cast<void>(NetworkAddresses(topology.hosts, rank));
}

}  // namespace
}  // namespace trnccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  fuzz::Input input(data, size);
  const uint8_t which = input.Take<uint8_t>();
  const std::string_view text = input.Rest();
  switch (which % 5) {
    case 0: {
      const auto facts = ParseHostFacts(text);
      if (facts.ok()) TRNCCL_CHECK(HostFactsText(*facts) == text);
      break;
    }
    case 1:
      TakeTopology(text);
      break;
    case 2: {
      const auto nics = ParseNics(text);
      if (nics.ok()) TRNCCL_CHECK(ParseNics(NicsText(*nics)).ok());
      break;
    }
    case 3: {
      const auto cpus = ParseCpuSet(text);
      if (cpus.ok()) TRNCCL_CHECK(*ParseCpuSet(CpuSetText(*cpus)) == *cpus);
      break;
    }
    case 4: {
      const auto sets = ParseCpuSets(text);
      if (sets.ok()) TRNCCL_CHECK(*ParseCpuSets(CpuSetsText(*sets)) == *sets);
      break;
    }
  }
  return 0;
}
