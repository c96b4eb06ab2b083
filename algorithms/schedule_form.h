// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Whether a schedule is well-formed: what can be said of each step by itself,
// before anything is played. Peers, chunks and slots are in range, no step
// names a peer twice, moves data from nowhere or to nowhere, or reads scratch
// that it writes at another position. The programs agree where they must.
//
// Thread rule: pure function.
//
//   RETURN_IF_ERROR(CheckForm(schedule, {.ranks = 4, .blocks = 1}));
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "algorithms/schedule.h"

namespace trnccl {

struct FormLimits {
  int ranks = 1;
  int64_t blocks = 1;
};

absl::Status CheckForm(const Schedule& schedule, const FormLimits& limits);

}  // namespace trnccl
