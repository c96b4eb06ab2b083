// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/launch.h"

#include <charconv>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ccl/base/status_macros.h"

namespace trnccl::perf {
namespace {

struct Launcher {
  const char* process;
  const char* processes;
  bool by_mpi;
};

// The first that is there counts: under mpirun, a batch system's variables may
// be there too.
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true},
    {"PMI_RANK", "PMI_SIZE", false},
    {"RANK", "WORLD_SIZE", false},  // torchrun
    {"SLURM_PROCID", "SLURM_NTASKS", false},
};

absl::StatusOr<int> Number(Environment environment, const char* name) {
  const char* text = environment(name);
  if (text == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat(name, " isn't set, though its launcher's rank is"));
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < 0)
    return absl::InvalidArgumentError(
        absl::StrCat(name, "='", text, "' isn't a rank or a number of ranks"));
  return value;
}

}  // namespace

absl::StatusOr<Launch> FindLaunch(Environment environment) {
  for (const Launcher& launcher : kLaunchers) {
    if (environment(launcher.process) == nullptr) continue;
    Launch launch;
    launch.by_mpi = launcher.by_mpi;
    ASSIGN_OR_RETURN(launch.process, Number(environment, launcher.process));
    ASSIGN_OR_RETURN(launch.processes, Number(environment, launcher.processes));
    if (launch.process >= launch.processes)
      return absl::InvalidArgumentError(
          absl::StrCat(launcher.process, "=", launch.process, " isn't below ",
                       launcher.processes, "=", launch.processes));
    return launch;
  }
  return Launch{};
}

absl::StatusOr<int> SplitGroup(Environment environment, int rank) {
  std::string rule;
  if (const char* mask = environment("NCCL_TESTS_SPLIT_MASK"))
    rule = absl::StrCat("AND ", mask);
  if (const char* split = environment("NCCL_TESTS_SPLIT")) rule = split;
  if (rule.empty()) return 0;
  const std::pair<std::string, std::string> words =
      absl::StrSplit(rule, absl::MaxSplits(' ', 1));
  int value = 0;
  if (absl::SimpleAtoi(words.second, &value) && value >= 0) {
    if (words.first == "AND") return rank & value;
    if (words.first == "OR") return rank | value;
    if (words.first == "MOD" && value > 0) return rank % value;
    if (words.first == "DIV" && value > 0) return rank / value;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "NCCL_TESTS_SPLIT '", rule,
      "' isn't AND, OR, MOD or DIV and a number, such as 'MOD 2'"));
}

}  // namespace trnccl::perf
