// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/simulation/mistakes.h"

#include <algorithm>

namespace trnccl {
namespace {

void Mistake(int ranks, Draw* draw, SimCall* call) {
  const Spec& spec = SpecOf(call->collective);
  const bool even = !spec.uneven && call->collective != Collective::kBarrier;
  if (spec.rooted && draw->Percent(40)) {
    call->root = (call->root + 1) % ranks;
  } else if (even && draw->Percent(40)) {
    call->count += 1 + draw->Below(3);
  } else if (even && !spec.reduces && draw->Percent(50)) {
    call->type =
        call->type == DataType::kInt32 ? DataType::kUint32 : DataType::kInt32;
  } else if (spec.reduces && !spec.uneven && call->op != ReduceOp::kMax &&
             call->op != ReduceOp::kSum && draw->Percent(50)) {
    call->op = ReduceOp::kSum;
    call->type = DataType::kInt32;
  } else if (call->collective == Collective::kBarrier) {
    *call = {.collective = Collective::kAllReduce, .count = 1};
  } else {
    *call = {.collective = Collective::kBarrier, .type = DataType::kInt8};
  }
}

}  // namespace

bool MakeMistake(int ranks, Draw* draw, SimSubmission* submission) {
  const auto collective =
      std::ranges::find(*submission, SimCall::kCollective, &SimCall::kind);
  if (collective == submission->end()) return false;
  Mistake(ranks, draw, &*collective);
  return true;
}

}  // namespace trnccl
