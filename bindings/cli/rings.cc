// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/rings.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ccl/recorder/call_log.h"
#include "ccl/recorder/call_ring.h"
#include "ccl/recorder/process_logs.h"

namespace trnccl::cli {
namespace {

JobCall CallOf(const LoggedCall& logged, int ranks) {
  const bool message = IsMessage(logged.kind);
  const CallSizes sizes = SizesOf(logged, ranks);
  JobCall call{.sequence = logged.sequence,
               .message = message,
               .kind = AnalyserName(logged.kind),
               .type = std::string(Name(logged.type)),
               .count = std::max(sizes.input, sizes.output),
               .peer = logged.peer,
               .tag = message ? logged.tag : -1,
               .algorithm = logged.algorithm,
               .state = static_cast<JobCall::State>(logged.state),
               .created_ns = logged.created_ns,
               .started_ns = logged.started_ns,
               .finished_ns = logged.finished_ns};
  call.bytes = *call.count * ElementBytes(logged.type);
  if (absl::StrContains(call.kind, "reduce"))
    call.op = std::string(Name(logged.op));
  if (absl::StrContains(call.kind, "_v") || call.kind == "barrier")
    call.count = std::nullopt;
  return call;
}

void AddLog(const CallLog& log, Member member, Job* job) {
  const int ranks = log.owner.membership.ranks;
  member.rank = log.owner.membership.rank;
  member.host = log.owner.hostname;
  member.cause = log.cause;
  member.read_ns = log.read_ns;
  member.scheduled = log.last_scheduled;
  member.completed = log.last_completed;
  for (const LoggedCall& logged : log.calls)
    member.calls.push_back(CallOf(logged, ranks));
  JobCommunicator like{
      .id = absl::StrCat(absl::Hex(log.owner.cookie, absl::kZeroPad8)),
      .name = log.owner.name,
      .ranks = std::vector<int>(static_cast<size_t>(ranks))};
  std::iota(like.ranks.begin(), like.ranks.end(), 0);
  AddMember(like, std::move(member), job);
}

std::vector<pid_t> AllProcesses() {
  std::vector<pid_t> pids;
  std::error_code ignored;  // Of those that end meanwhile.
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc", ignored)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry.path().filename().string(), &pid))
      pids.push_back(pid);
  }
  return pids;
}

}  // namespace

Job ReadRings(std::span<const pid_t> pids) {
  Job job;
  const std::vector<pid_t> chosen =
      pids.empty() ? AllProcesses() : std::vector(pids.begin(), pids.end());
  for (const pid_t pid : chosen) {
    const auto not_read = [&](const absl::Status& why) {
      job.unread.push_back(
          {absl::StrCat("pid ", pid), std::string(why.message())});
    };
    const auto logs = ReadProcessLogs(pid);
    if (!logs.ok()) {
      // Others' processes are nobody's business, unless asked for.
      if (!pids.empty()) not_read(logs.status());
      continue;
    }
    if (logs->empty()) continue;
    const std::string state = StateOf(pid).state;
    for (const absl::StatusOr<CallLog>& log : *logs) {
      if (!log.ok()) {
        not_read(log.status());
      } else {
        AddLog(*log, {.pid = pid, .process = state}, &job);
      }
    }
  }
  return job;
}

}  // namespace trnccl::cli
