// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/prove_row.h"

#include "algorithms/catalog.h"
#include "gtest/gtest.h"

namespace trnccl {

Proven ProveRow(Collective collective, std::string_view name,
                const Shape& shape) {
  const Proven failed{-1, -1, -1, -1};
  const Algorithm* algorithm = FindAlgorithm(collective, name);
  if (algorithm == nullptr) {
    ADD_FAILURE() << "no row " << name << " for " << Name(collective);
    return failed;
  }
  const absl::StatusOr<Proven> proven =
      Verify(BuildSchedule(*algorithm, shape), {.collective = collective,
                                                .ranks = shape.ranks,
                                                .root = shape.root,
                                                .proofs = algorithm->proofs});
  if (proven.ok()) return *proven;
  ADD_FAILURE() << name << " for " << Name(collective) << ", " << shape.ranks
                << " ranks, root " << shape.root << ": " << proven.status();
  return failed;
}

void ForEachSize(const std::function<void(int)>& test) {
  for (int ranks = 1; ranks <= 33; ++ranks) test(ranks);
  for (const int ranks : {64, 100, 129}) test(ranks);
}

}  // namespace trnccl
