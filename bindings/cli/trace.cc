// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/trace.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "bindings/cli/chrome_trace.h"
#include "bindings/cli/dump_file.h"
#include "bindings/cli/report.h"
#include "ccl/base/status_macros.h"

namespace trnccl::cli {
namespace {

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code ignored;  // A file that can't be looked at is none.
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.is_regular_file(ignored)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

absl::StatusOr<TraceOptions> ParseTraceFlags(std::span<char* const> arguments) {
  TraceOptions options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (word == "--json") {
      options.json = true;
    } else if (word == "--chrome" && i + 1 < arguments.size()) {
      options.chrome = arguments[++i];
    } else if (word.starts_with("--")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "trace: \"", arguments[i], "\" isn't --json or --chrome OUT.json"));
    } else {
      options.paths.emplace_back(word);
    }
  }
  if (options.paths.empty())
    return absl::InvalidArgumentError("trace: name dumps, or their folder");
  return options;
}

absl::StatusOr<Job> ReadDumps(const std::vector<std::string>& paths) {
  Job job;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
      for (const std::string& file : FilesIn(path)) {
        const absl::Status status = AddDump(file, &job);
        if (!status.ok())
          job.unread.push_back({file, std::string(status.message())});
      }
      continue;
    }
    const absl::Status status = AddDump(path, &job);
    if (!status.ok())
      return absl::Status(status.code(),
                          absl::StrCat(path, ": ", status.message()));
  }
  return job;
}

absl::Status RunTrace(std::span<char* const> arguments) {
  ASSIGN_OR_RETURN(const TraceOptions options, ParseTraceFlags(arguments));
  absl::StatusOr<Job> job = ReadDumps(options.paths);
  // Exits with 1, not with 2: it was called rightly.
  if (!job.ok())
    return absl::UnavailableError(
        absl::StrCat("trace: ", job.status().message()));
  const std::string text = options.json ? ReportJson(*job) : ReportText(*job);
  std::fputs(text.c_str(), stdout);
  if (options.chrome.empty()) return absl::OkStatus();
  std::ofstream file(options.chrome);
  file << ChromeTrace(*job) << std::flush;
  if (!file)
    return absl::UnavailableError(
        absl::StrCat("trace: can't write ", options.chrome));
  return absl::OkStatus();
}

}  // namespace trnccl::cli
