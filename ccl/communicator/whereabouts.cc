// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of Communicator that says, in its errors, what ranks wait for and
// where those are. It needs the token.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ccl/communicator/communicator.h"
#include "ccl/recorder/process_logs.h"

namespace trnccl {
namespace {

// What's told of where others are stays about so long.
constexpr size_t kWhereaboutsBytes = 800;

}  // namespace

std::string Communicator::NameOf(int rank) const {
  const HostFacts& host = parts_.topology.hosts[static_cast<size_t>(rank)];
  return absl::StrCat("rank ", rank, " (host ", host.hostname, ", pid ",
                      host.pid, ")");
}

std::string Communicator::DescribeWait(const Operation& operation) const {
  if (operation.kind == Operation::Kind::kTransfer)
    return point_to_point_->Describe(operation.transfer);
  const std::string call = DescribeCall(envelope_);
  if (runner_ == Runner::kProgram)
    return absl::StrCat(call, " ", executor_.DescribeWait());
  if (runner_ == Runner::kEngine)
    return absl::StrCat(call, " ", engine_stage_->DescribeWait());
  return absl::StrCat(call, " waits for data of rank ",
                      absl::StrJoin(short_run_.WaitsFor(), ", "),
                      " (algorithm ", std::string(*last_algorithm_.load()),
                      ")");
}

std::optional<CallLog> Communicator::LogOf(int rank) const {
  const std::vector<HostFacts>& hosts = parts_.topology.hosts;
  const HostFacts& host = hosts[static_cast<size_t>(rank)];
  if (host.machine != hosts[parts_.membership.rank].machine)
    return std::nullopt;
  const auto logs = ReadProcessLogs(static_cast<pid_t>(host.pid));
  if (!logs.ok()) return std::nullopt;
  for (const absl::StatusOr<CallLog>& log : *logs) {
    // Who has that number here may be another process.
    if (log.ok() && log->owner.cookie == parts_.cookie &&
        log->owner.membership.rank == rank && log->owner.pid == host.pid)
      return *log;
  }
  return std::nullopt;
}

std::optional<std::string> Communicator::WhereIs(int rank) const {
  const std::optional<CallLog> log = LogOf(rank);
  if (!log.has_value()) return std::nullopt;
  return absl::StrCat(StateOf(static_cast<pid_t>(log->owner.pid)).state, ", ",
                      DescribeProgress(*log));
}

std::string Communicator::DescribePeer(int rank) const {
  return absl::StrCat(
      NameOf(rank), ": ",
      WhereIs(rank).value_or("can't be seen from here; `trnccl status` on its "
                             "host tells what it does"));
}

std::string Communicator::DescribeSilent(const std::vector<int>& ranks) const {
  std::string text;
  for (const int rank : ranks) {
    if (text.size() > kWhereaboutsBytes) return absl::StrCat(text, "; ...");
    absl::StrAppend(&text, "; no answer from ", NameOf(rank));
    // Whoever waits for it may have said where it is.
    if (absl::StrContains(verdict_.message(), NameOf(rank) + " is ")) continue;
    absl::StrAppend(&text, ": ",
                    WhereIs(rank).value_or(
                        "in no call of this communicator, or stopped; `trnccl "
                        "status` on its host tells"));
  }
  return text;
}

std::string Communicator::DescribeAwaited(const Operation& operation) const {
  std::string text;
  for (const int rank : WaitsFor(operation)) {
    if (text.size() > kWhereaboutsBytes) return absl::StrCat(text, "; ...");
    const std::optional<CallLog> log = LogOf(rank);
    // Who waits in the same call isn't to blame.
    if (!log.has_value() ||
        (current_ == &operation &&
         log->last_scheduled + parts_.first_sequence - 1 == current_->sequence))
      continue;
    absl::StrAppend(&text, "; ", NameOf(rank), " is ",
                    StateOf(static_cast<pid_t>(log->owner.pid)).state, ", ",
                    DescribeProgress(*log));
  }
  return text;
}

std::vector<int> Communicator::WaitsFor(const Operation& operation) const {
  if (operation.kind == Operation::Kind::kTransfer) {
    if (operation.transfer.peer < 0) return {};
    return {operation.transfer.peer};
  }
  switch (runner_) {
    case Runner::kProgram:
      return executor_.WaitsFor();
    case Runner::kEngine:
      return engine_stage_->WaitsFor();
    default:
      return short_run_.WaitsFor();
  }
}

}  // namespace trnccl
