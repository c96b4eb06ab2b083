// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// How long a cache line takes from the core of rank 0 to that of rank 1, one
// way: the host may move virtual processors about, and every latency moves with
// this one.
//
// Thread rule: all ranks call it together.
//
//   ASSIGN_OR_RETURN(std::optional<double> ns, MeasureCacheLineNs(team));
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "bindings/mpi/team.h"

namespace trnccl::perf {

// Every rank gets the result; none if the two can't share memory.
absl::StatusOr<std::optional<double>> MeasureCacheLineNs(Team& team);

}  // namespace trnccl::perf
