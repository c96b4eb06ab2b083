// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The loop over types, operators, roots and sizes: a row of the table each.
//
// Thread rule: a session belongs to one rank, that is one thread; all ranks
// make the same calls.
//
//   RETURN_IF_ERROR(RunSweep(session, [&](const Row& row) { ... }));
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "bindings/mpi/measure.h"
#include "bindings/mpi/report.h"

namespace trnccl::perf {

// Fails if the library does, or if the options ask for what this number of
// ranks can't have.
absl::Status RunSweep(const Session& session,
                      const std::function<void(const Row&)>& add);

}  // namespace trnccl::perf
