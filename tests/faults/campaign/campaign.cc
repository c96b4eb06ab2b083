// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Many faults, one after the other, and a table of what came of them.
//
//   campaign [--faults N] [--seed S] [--ranks MOST] [--kinds kill,stop,...]
//            [--phases init,all_reduce,...] [--meet FOLDER] [--slack-ms MS]
//
// Fault i has the seed S + i; S is drawn and printed if it isn't given. With
// --meet it's started once per node by bin/nodes, and the ranks are spread over
// the nodes. Ends with 1 if anything wasn't as promised.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/faults/campaign/fault.h"
#include "tests/faults/campaign/nodes.h"
#include "tests/faults/campaign/trial.h"

namespace trnccl {
namespace {

struct Tally {
  int faults = 0;
  int failures = 0;
  int leaks = 0;
  std::vector<double> notice_ms;

  void Add(const Verdict& verdict) {
    ++faults;
    failures += verdict.failures.empty() ? 0 : 1;
    for (const std::string& failure : verdict.failures) {
      if (!absl::StrContains(failure, "left behind")) continue;
      ++leaks;
      break;
    }
    notice_ms.insert(notice_ms.end(), verdict.notice_ms.begin(),
                     verdict.notice_ms.end());
  }

  void Print(const std::string& kind, const std::string& phase) {
    std::sort(notice_ms.begin(), notice_ms.end());
    const bool any = !notice_ms.empty();
    std::printf("| %s | %s | %d | %d | %d | %.0f | %.0f |\n", kind.c_str(),
                phase.c_str(), faults, failures, leaks,
                any ? notice_ms[notice_ms.size() / 2] : 0,
                any ? notice_ms.back() : 0);
  }
};

struct Options {
  uint64_t seed = std::random_device()();
  int faults = 1;
  std::string folder;  // empty: one node
  Scope scope = {.kinds = {FaultKind::kKill, FaultKind::kStop,
                           FaultKind::kStarve, FaultKind::kLeave},
                 .phases = Phases()};
  TrialOptions trial;
};

bool ReadKinds(const std::string& text, std::vector<FaultKind>* kinds) {
  kinds->clear();
  for (const auto name : absl::StrSplit(text, ',')) {
    for (const FaultKind kind :
         {FaultKind::kKill, FaultKind::kStop, FaultKind::kStarve,
          FaultKind::kLeave, FaultKind::kCut})
      if (name == NameOf(kind)) kinds->push_back(kind);
  }
  return !kinds->empty();
}

bool ReadPhases(const std::string& text, std::vector<std::string>* phases) {
  *phases = absl::StrSplit(text, ',');
  return std::all_of(phases->begin(), phases->end(), [](const auto& phase) {
    return std::count(Phases().begin(), Phases().end(), phase) == 1;
  });
}

bool ReadOption(const std::string& name, const std::string& value,
                Options* options) {
  if (name == "--faults") return absl::SimpleAtoi(value, &options->faults);
  if (name == "--seed") return absl::SimpleAtoi(value, &options->seed);
  if (name == "--ranks")
    return absl::SimpleAtoi(value, &options->scope.most_ranks);
  if (name == "--kinds") return ReadKinds(value, &options->scope.kinds);
  if (name == "--phases") return ReadPhases(value, &options->scope.phases);
  if (name == "--slack-ms")
    return absl::SimpleAtoi(value, &options->trial.slack_ms);
  if (name != "--meet") return false;
  options->folder = value;
  return true;
}

bool ReadOptions(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; i += 2)
    if (i + 1 == argc || !ReadOption(argv[i], argv[i + 1], options))
      return false;
  return options->scope.most_ranks >= 2 && options->scope.most_ranks <= 8;
}

void Print(const std::map<std::pair<std::string, std::string>, Tally>& rows) {
  std::printf(
      "\n| fault | in | tried | failures | leaks | median ms | worst ms |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const auto& [names, tally] : rows)
    Tally(tally).Print(names.first, names.second);
}

int Run(const Options& options) {
  std::map<std::pair<std::string, std::string>, Tally> rows;
  std::map<std::string, Tally> totals;
  int failed = 0;
  for (int i = 0; i < options.faults; ++i) {
    const Fault fault =
        DrawFault(options.seed + static_cast<uint64_t>(i), options.scope);
    const Verdict verdict = Try(fault, options.trial);
    rows[{NameOf(fault.kind), fault.phase}].Add(verdict);
    totals[NameOf(fault.kind)].Add(verdict);
    if (verdict.failures.empty()) continue;
    ++failed;
    std::printf("FAILED %s\n", Describe(fault).c_str());
    for (const std::string& failure : verdict.failures)
      std::printf("  %s\n", failure.c_str());
    std::fflush(stdout);
  }
  for (auto& [kind, tally] : totals) rows[{kind, "all"}] = tally;
  Print(rows);
  std::printf("\n%d faults from seed %llu on, %d failed\n", options.faults,
              static_cast<unsigned long long>(options.seed), failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace trnccl

int main(int argc, char** argv) {
  trnccl::Options options;
  if (!trnccl::ReadOptions(argc, argv, &options)) {
    std::fprintf(stderr, "usage: see tests/faults/README.md\n");
    return 2;
  }
  // What the ranks have to say of faults, they say to the trial.
  setenv("TRNCCL_LOG_FILE", "/dev/null", /*overwrite=*/0);
  const bool meets = !options.folder.empty();
  if (meets) options.trial.nodes = trnccl::Meet(options.folder);
  if (meets) options.scope.nodes = static_cast<int>(options.trial.nodes.size());
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
  const int code = trnccl::Run(options);
  if (meets) trnccl::Part(options.folder);
  return code;
}
