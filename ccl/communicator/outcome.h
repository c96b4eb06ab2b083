// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What became of each rank's connecting, as ranks tell each other, and what
// follows for all of them. Nothing in another rank's text is trusted.
//
// Thread rule: plain values and pure functions.
//
//   exchange->AllGather(OutcomeText({.status = mine, .slice_bytes = bytes}));
//   RETURN_IF_ERROR(VerdictOf(outcomes, membership, topology));
//   parts.slice_bytes = CommonSlice(outcomes);
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ccl/base/membership.h"
#include "ccl/topology/topology.h"

namespace trnccl {

struct Outcome {
  absl::Status status;
  size_t slice_bytes = 0;  // the longest message that all its transports take
};

std::string OutcomeText(const Outcome& outcome);

// What OutcomeText() of some rank wrote. Anything else is an error, and so is a
// success without messages.
Outcome ParseOutcome(const std::string& text);

// How messages are cut must not differ, though ranks have different transports:
// one that's alone on its node has no shared memory.
size_t CommonSlice(const std::vector<std::string>& outcomes);

// The error of all from the errors of each, by rank: this rank's own, or the
// one that tells most.
absl::Status VerdictOf(const std::vector<std::string>& outcomes,
                       const Membership& me, const Topology& topology);

}  // namespace trnccl
