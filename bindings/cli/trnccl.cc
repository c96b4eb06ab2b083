// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The command-line tool: finds the subcommand. Exits with 0, with 1 if it
// failed, or with 2 if it was called wrongly.
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "bindings/cli/info.h"
#include "bindings/cli/plan.h"
#include "bindings/cli/status.h"
#include "bindings/cli/trace.h"
#include "bindings/cli/tune.h"

namespace trnccl::cli {
namespace {

struct Subcommand {
  std::string_view name;
  absl::Status (*run)(std::span<char* const> arguments);
};

constexpr Subcommand kSubcommands[] = {
    {"info", RunInfo},   {"plan", RunPlan}, {"status", RunStatus},
    {"trace", RunTrace}, {"tune", RunTune},
};

constexpr char kHelp[] =
    R"(trnccl info [--json]
    Which library this is, what is set and by whom, what this machine has.
trnccl plan [--ranks N] [--nodes N] [--collective NAME]
    What the library would choose for calls of all sizes on this machine.
    Takes the TRNCCL_ settings of the environment.
trnccl status [--json] [--pid PID]...
    Where the live jobs of this machine are: each rank's call, for how long, and
    who holds up the rest. Sees processes that are stopped or hang, too.
trnccl trace [--json] [--chrome OUT.json] FILE|FOLDER...
    The ranks' dumps of calls (TRNCCL_DUMP_ON_FAILURE, trncclCommDumpCalls,
    PyTorch's flight recorder) as one answer.
trnccl tune [--out FILE] [--quick]
    Measures the constants that it chooses by, in some seconds on an idle
    machine, and writes them for TRNCCL_TUNING_FILE.
)";

int Main(std::span<char* const> arguments) {
  const std::string_view name = arguments.empty() ? "" : arguments[0];
  if (name == "help" || name == "--help") {
    std::fputs(kHelp, stdout);
    return 0;
  }
  for (const Subcommand& subcommand : kSubcommands) {
    if (subcommand.name != name) continue;
    const absl::Status status = subcommand.run(arguments.subspan(1));
    if (status.ok()) return 0;
    std::fprintf(stderr, "trnccl %s\n", std::string(status.message()).c_str());
    return absl::IsInvalidArgument(status) ? 2 : 1;
  }
  std::fputs(kHelp, stderr);
  return 2;
}

}  // namespace
}  // namespace trnccl::cli

int main(int argc, char** argv) {
  return trnccl::cli::Main({argv + 1, static_cast<size_t>(argc - 1)});
}
