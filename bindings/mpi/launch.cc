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
  const char* sign;  // is set by this launcher
  const char* process;
  const char* processes;
  bool by_mpi;
};

// The first whose sign is there counts. Launchers start one another, and the
// outer one's variables are there too: an srun or mpirun a node may start
// torchrun, and mpirun runs inside a batch system's or Kubernetes' job.
constexpr Launcher kLaunchers[] = {
    {"TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", false},  // torchrun
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     true},
    {"RANK", "RANK", "WORLD_SIZE", false},  // Kubernetes' operators
    {"PMI_RANK", "PMI_RANK", "PMI_SIZE", false},
    // srun, whose step may be a part of the job.
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", false},
    // What's handed into containers, often without the step's.
    {"SLURM_PROCID", "SLURM_PROCID", "SLURM_NTASKS", false},
};

// A Kubernetes job that numbers its pods, and says itself how many they are:
// without that, the pods have nothing to do with each other.
constexpr Launcher kIndexedJob = {"WORLD_SIZE", "JOB_COMPLETION_INDEX",
                                  "WORLD_SIZE", false};

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

absl::StatusOr<Launch> Read(const Launcher& launcher, Environment environment) {
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

}  // namespace

absl::StatusOr<Launch> FindLaunch(Environment environment) {
  for (const Launcher& launcher : kLaunchers)
    if (environment(launcher.sign) != nullptr)
      return Read(launcher, environment);
  if (environment(kIndexedJob.sign) != nullptr &&
      environment(kIndexedJob.process) != nullptr)
    return Read(kIndexedJob, environment);
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
