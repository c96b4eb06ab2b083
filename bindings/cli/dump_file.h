// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Dumps of calls, as the library (trncclCommDumpCalls, TRNCCL_DUMP_ON_FAILURE)
// and PyTorch's flight recorders leave them.
//
// Thread rule: pure, but for reading files.
//
//   Job job;
//   RETURN_IF_ERROR(AddDump("/tmp/job/calls_0", &job));
#pragma once

#include <string>

#include "absl/status/status.h"
#include "bindings/cli/job.h"

namespace trnccl::cli {

// A dump that names no rank, as PyTorch's, is of the rank that ends the file's
// name.
absl::Status AddDump(const std::string& path, Job* job);

}  // namespace trnccl::cli
