// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/tune.h"

#include <sys/utsname.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bindings/cli/calibration.h"
#include "bindings/cli/measure.h"
#include "bindings/cli/pair.h"
#include "ccl/base/clock.h"
#include "ccl/base/status_macros.h"

namespace trnccl::cli {
namespace {

constexpr int64_t kPatienceMs = 60'000;  // on a busy machine
constexpr int kQuickRepeats = 20;

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "unknown processor";
}

// Who, where and when, as comments.
std::string Head(const TuneOptions& options) {
  utsname machine = {};
  uname(&machine);
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char date[32];
  std::strftime(date, sizeof(date), "%Y-%m-%d %H:%M", &utc);
  return absl::StrCat("# By trnccl tune on ", machine.nodename, ", ",
                      ProcessorName(), ", ", date, " UTC, ", options.rounds,
                      " rounds; each constant is the median of the rounds.\n",
                      "# TRNCCL_TUNING_FILE names this file, alike on all "
                      "ranks.\n");
}

}  // namespace

absl::StatusOr<TuneOptions> ParseTuneFlags(std::span<char* const> arguments) {
  TuneOptions options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view flag = arguments[i];
    if (flag == "--quick") {
      options.rounds = 1;
      options.repeats = kQuickRepeats;
    } else if (flag == "--out" && i + 1 < arguments.size()) {
      options.out = arguments[++i];
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "tune: \"", arguments[i], "\" isn't --quick or --out FILE"));
    }
  }
  return options;
}

absl::StatusOr<std::string> Tune(const TuneOptions& options) {
  const Deadline deadline = Deadline::After(kPatienceMs);
  std::vector<LinkModel> models;
  for (int round = 0; round < options.rounds; ++round) {
    // New processes each time: where the kernel puts their memory matters.
    ASSIGN_OR_RETURN(const auto both,
                     RunPair<Measured>(
                         [&](Seat& seat) {
                           return Measure(seat, {.repeats = options.repeats});
                         },
                         deadline));
    for (const Measured& measured : both) models.push_back(ModelOf(measured));
  }
  return TuningText(models, Head(options));
}

absl::Status RunTune(std::span<char* const> arguments) {
  ASSIGN_OR_RETURN(const TuneOptions options, ParseTuneFlags(arguments));
  ASSIGN_OR_RETURN(const std::string text, Tune(options));
  if (options.out.empty()) {
    std::fputs(text.c_str(), stdout);
    return absl::OkStatus();
  }
  std::ofstream file(options.out);
  file << text << std::flush;
  if (!file)
    return absl::UnavailableError(
        absl::StrCat("tune: can't write ", options.out));
  return absl::OkStatus();
}

}  // namespace trnccl::cli
