// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What ranks tell each other of how their connecting went.
#include <cstdint>
#include <string>
#include <vector>

#include "ccl/base/check.h"
#include "ccl/communicator/outcome.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  fuzz::Input input(data, size);
  const int ranks = 1 + input.Take<uint8_t>() % 4;
  std::vector<std::string> texts;
  for (int rank = 0; rank < ranks; ++rank)
    texts.emplace_back(input.TakePiece());
  bool all_ok = true;
  for (const std::string& text : texts) {
    const Outcome outcome = ParseOutcome(text);
    all_ok &= outcome.status.ok() && (ranks == 1 || outcome.slice_bytes > 0);
    TRNCCL_CHECK(ParseOutcome(OutcomeText(outcome)).status.code() ==
                 outcome.status.code());
  }
  Topology topology;
  topology.hosts.resize(texts.size());
  const absl::Status verdict =
      VerdictOf(texts, {.rank = ranks - 1, .ranks = ranks}, topology);
  TRNCCL_CHECK(verdict.ok() == all_ok);
  if (all_ok && ranks > 1) TRNCCL_CHECK(CommonSlice(texts) > 0);
  return 0;
}
