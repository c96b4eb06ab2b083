// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/faults/outcome.h"

#include "ccl/base/clock.h"

namespace trnccl {

Outcome OutcomeOf(const std::function<trncclResult_t()>& call) {
  const int64_t start_ns = NowNs();
  Outcome outcome;
  outcome.result = call();
  outcome.took_ms = (NowNs() - start_ns) / 1'000'000;
  if (outcome.result != trncclSuccess)
    outcome.text = trncclGetLastError(nullptr);
  return outcome;
}

testing::AssertionResult Says(const Outcome& outcome,
                              const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (outcome.text.find(part) == std::string::npos)
      return testing::AssertionFailure()
             << "no \"" << part << "\" in \"" << outcome.text << "\" (result "
             << trncclGetErrorString(outcome.result) << ")";
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult Works(trncclComm_t comm, size_t count) {
  int rank = 0;
  int ranks = 0;
  trncclCommUserRank(comm, &rank);
  trncclCommCount(comm, &ranks);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(i % 1000 + static_cast<size_t>(rank));
  const trncclResult_t result =
      trncclAllReduce(values.data(), values.data(), count, trncclFloat32,
                      trncclSum, comm, nullptr);
  if (result != trncclSuccess)
    return testing::AssertionFailure() << trncclGetLastError(nullptr);
  for (size_t i = 0; i < count; ++i) {
    const auto sum =
        static_cast<float>(static_cast<size_t>(ranks) * (i % 1000) +
                           static_cast<size_t>(ranks * (ranks - 1) / 2));
    if (values[i] != sum)
      return testing::AssertionFailure()
             << "element " << i << " is " << values[i] << ", not " << sum;
  }
  return testing::AssertionSuccess();
}

}  // namespace trnccl
