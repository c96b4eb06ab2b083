// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A job as users read it: `trnccl status` and `trnccl trace` both end here.
//
// Thread rule: pure.
//
//   std::fputs(ReportText(job).c_str(), stdout);
#pragma once

#include <string>

#include "bindings/cli/job.h"

namespace trnccl::cli {

// A paragraph a communicator: what's wrong, then a line a rank.
std::string ReportText(const Job& job);
// The same facts.
std::string ReportJson(const Job& job);

}  // namespace trnccl::cli
