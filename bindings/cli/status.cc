// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/status.h"

#include <cstdio>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bindings/cli/report.h"
#include "bindings/cli/rings.h"
#include "ccl/base/status_macros.h"

namespace trnccl::cli {

absl::StatusOr<StatusOptions> ParseStatusFlags(
    std::span<char* const> arguments) {
  StatusOptions options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view flag = arguments[i];
    pid_t pid = 0;
    if (flag == "--json") {
      options.json = true;
    } else if (flag == "--pid" && i + 1 < arguments.size() &&
               absl::SimpleAtoi(arguments[i + 1], &pid) && pid > 0) {
      options.pids.push_back(pid);
      ++i;
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "status: \"", arguments[i], "\" isn't --json or --pid PID"));
    }
  }
  return options;
}

absl::Status RunStatus(std::span<char* const> arguments) {
  ASSIGN_OR_RETURN(const StatusOptions options, ParseStatusFlags(arguments));
  const Job job = ReadRings(options.pids);
  const std::string text = options.json ? ReportJson(job) : ReportText(job);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace trnccl::cli
