// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of Communicator that says, in its errors, what ranks wait for and
// where those are. It needs the token.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/spec.h"
#include "ccl/communicator/communicator.h"
#include "ccl/executor/call.h"
#include "ccl/recorder/process_logs.h"

namespace trnccl {
namespace {

// What's told of where others are stays about so long.
constexpr size_t kWhereaboutsBytes = 800;

// Of more ranks, a late one doesn't read the logs: each takes a moment.
constexpr size_t kMostLogs = 32;

}  // namespace

std::string Communicator::NameOf(int rank) const {
  return NameOfRank(parts_.topology, rank);
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
  const auto logs =
      ReadProcessLogs(static_cast<pid_t>(host.pid),
                      LogKey{.cookie = parts_.cookie, .rank = rank});
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

std::string Communicator::DescribePeer(int rank) {
  const Fate fate = FateOf(rank);
  if (fate.kind != Fate::Kind::kPresent)
    return absl::StrCat(NameOf(rank), ": ", fate.how);
  return absl::StrCat(
      NameOf(rank), ": ",
      WhereIs(rank).value_or("can't be seen from here; `trnccl status` on its "
                             "host tells what it does"));
}

std::string Communicator::DescribeSilent(const std::vector<int>& ranks) const {
  std::string text;
  for (const int rank : ranks) {
    if (text.size() > kWhereaboutsBytes) return absl::StrCat(text, "...; ");
    absl::StrAppend(&text, "no answer from ", NameOf(rank));
    // Whoever waits for it may have said where it is.
    if (!absl::StrContains(verdict_.message(), NameOf(rank) + " is ")) {
      absl::StrAppend(
          &text, ": ",
          WhereIs(rank).value_or("in no call of this communicator, or stopped; "
                                 "`trnccl status` on its host tells"));
    }
    absl::StrAppend(&text, "; ");
  }
  return text;
}

int32_t Communicator::CallsAhead(const CallLog& log) const {
  const auto last =
      static_cast<uint32_t>(log.last_scheduled) + parts_.first_sequence - 1;
  return static_cast<int32_t>(last - current_->sequence);
}

std::optional<RankCall> Communicator::OtherCall() const {
  const Spec& mine = SpecOf(current_->call.collective);
  const Envelope& fingerprint = envelope_;
  for (const int rank : WaitsFor(*current_)) {
    const std::optional<CallLog> log = LogOf(rank);
    if (!log.has_value()) continue;
    for (const LoggedCall& call : log->calls) {
      if (IsMessage(call.kind) ||
          call.sequence + parts_.first_sequence - 1 != current_->sequence)
        continue;
      const auto collective = static_cast<Collective>(call.kind);
      const Spec& spec = SpecOf(collective);
      const CallShape shape = {.collective = collective,
                               .type = call.type,
                               .op = spec.reduces ? call.op : ReduceOp::kSum,
                               .root = spec.rooted ? call.peer : 0};
      // Of uneven ones, what's compared isn't in the log.
      const uint64_t count =
          spec.uneven && mine.uneven ? fingerprint.words[2] : call.count;
      const Envelope other = {{fingerprint.words[0], shape.Word(), count}};
      if (other != fingerprint) return RankCall{rank, other};
    }
  }
  return std::nullopt;
}

std::string Communicator::DescribeAwaited(const Operation& operation) const {
  std::string text;
  for (const int rank : WaitsFor(operation)) {
    if (text.size() > kWhereaboutsBytes) return absl::StrCat(text, "; ...");
    const std::optional<CallLog> log = LogOf(rank);
    // Who waits in the same call isn't to blame.
    if (!log.has_value() || (current_ == &operation && CallsAhead(*log) == 0))
      continue;
    absl::StrAppend(&text, "; ", NameOf(rank), " is ",
                    StateOf(static_cast<pid_t>(log->owner.pid)).state, ", ",
                    DescribeProgress(*log));
  }
  return text;
}

std::optional<int> Communicator::Suspect(const Operation& operation) const {
  std::vector<int> candidates = WaitsFor(operation);
  if (&operation != current_)
    return candidates.empty() ? std::nullopt
                              : std::optional(candidates.front());
  std::vector<int> unsaid;  // ranks that have waited for long have said so
  for (int rank = 0; rank < parts_.membership.ranks; ++rank) {
    if (rank == parts_.membership.rank) continue;
    candidates.push_back(rank);
    const Envelope* call = health_->WaitingIn(rank);
    if (call == nullptr || call->words[0] != envelope_.words[0])
      unsaid.push_back(rank);
  }
  candidates.resize(std::min(candidates.size(), kMostLogs));
  std::optional<int> last;
  int32_t lasts_calls = 0;
  for (const int rank : candidates) {
    const std::optional<CallLog> log = LogOf(rank);
    if (!log.has_value() || CallsAhead(*log) >= lasts_calls) continue;
    last = rank;
    lasts_calls = CallsAhead(*log);
  }
  if (last.has_value()) return last;
  return unsaid.size() == 1 ? std::optional(unsaid.front()) : std::nullopt;
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
