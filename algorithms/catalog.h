// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The one table of algorithms: name, collective, when it's legal, what the
// verifier has to prove of it, and its builder. To add an algorithm: its file,
// one row here, one BUILD line; proof, cost and oracle tests come by
// themselves.
//
// Thread rule: a constant table and pure functions.
//
//   for (const Algorithm& algorithm : AlgorithmsFor(Collective::kAllReduce))
//     if (algorithm.legal(shape)) program = algorithm.build(shape);
#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "algorithms/schedule.h"
#include "algorithms/spec.h"
#include "ccl/base/types.h"

namespace trnccl {

struct Algorithm {
  std::string_view name;  // "ring", "two_step", "double_tree", ...
  Collective collective;

  // What holds, each proved by the verifier.
  struct Proofs {
    bool in_place = false;      // output may be the input's memory
    bool by_reference = false;  // sends may point into buffers
    bool left_fold = false;  // every fold tree is ((0 op 1) op 2) ...: strict
    bool uneven = false;     // right for blocks of different counts
  } proofs;

  bool (*legal)(const Shape& shape);
  Program (*build)(const Shape& shape);
};

std::span<const Algorithm> Catalog();

// The row of this name for this collective, or null. The v-variants are served
// by the rows of their even sisters that are proved uneven.
const Algorithm* FindAlgorithm(Collective collective, std::string_view name);

}  // namespace trnccl
