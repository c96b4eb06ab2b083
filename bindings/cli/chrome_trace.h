// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A job's calls over time, in the trace event format that chrome://tracing and
// Perfetto show: a process each, a thread a communicator. Ranks are set beside
// each other by the dates in their dumps, so as well as their hosts' clocks
// agree.
//
// Thread rule: pure.
//
//   std::ofstream("calls.json") << ChromeTrace(job);
#pragma once

#include <string>

#include "bindings/cli/job.h"

namespace trnccl::cli {

std::string ChromeTrace(const Job& job);

}  // namespace trnccl::cli
