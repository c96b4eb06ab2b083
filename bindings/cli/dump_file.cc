// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/dump_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bindings/cli/value.h"
#include "ccl/base/status_macros.h"
#include "ccl/base/types.h"
#include "ccl/recorder/call_log.h"

namespace trnccl::cli {
namespace {

// "nccl:send 0->1" is send, "gloo:_all_gather_base" what its caller called it.
std::string KindOf(std::string_view profiling_name) {
  const size_t colon = profiling_name.find(':');
  if (colon != profiling_name.npos) profiling_name.remove_prefix(colon + 1);
  profiling_name = profiling_name.substr(0, profiling_name.find(' '));
  if (profiling_name == "_all_gather_base") return "all_gather_into_tensor";
  if (profiling_name == "_reduce_scatter_base") return "reduce_scatter_tensor";
  return std::string(profiling_name);
}

// The other side of "send 0->1" or "recv 0<-1".
int64_t PeerOf(std::string_view profiling_name) {
  int64_t peer = -1;
  const size_t end = profiling_name.find_last_not_of("0123456789");
  if (end == profiling_name.npos) return -1;
  const std::string_view digits = profiling_name.substr(end + 1);
  const absl::string_view view(digits.data(), digits.size());
  return absl::SimpleAtoi(view, &peer) ? peer : -1;
}

struct Type {
  std::string name;
  uint64_t bytes = 0;
};

Type TypeOf(const std::string& analyser_name) {
  for (int i = 0; i < kDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    if (AnalyserName(type) == analyser_name)
      return {std::string(Name(type)), ElementBytes(type)};
  }
  return {analyser_name, 0};
}

uint64_t ElementsOf(const Value& shapes) {
  uint64_t total = 0;
  for (const Value& shape : shapes.list()) {
    uint64_t elements = 1;
    for (const Value& dimension : shape.list())
      elements *= static_cast<uint64_t>(dimension.number());
    total += elements;
  }
  return total;
}

// PyTorch records a rank's own tensors: only of these are they alike on all.
bool SizesAgree(const std::string& kind) {
  for (const char* even : {"all_reduce", "broadcast", "reduce", "all_gather",
                           "all_gather_into_tensor", "reduce_scatter",
                           "reduce_scatter_tensor", "send", "recv"})
    if (kind == even) return true;
  return false;
}

JobCall::State StateOf(const Value& entry) {
  if (entry["failed"].truth()) return JobCall::kFailed;
  if (entry["state"].text() == "completed") return JobCall::kCompleted;
  return entry["state"].text() == "started" ? JobCall::kStarted
                                            : JobCall::kScheduled;
}

void FillSizes(const Value& entry, JobCall* call) {
  const Value& types = entry["input_dtypes"].list().empty()
                           ? entry["output_dtypes"]
                           : entry["input_dtypes"];
  const Type type =
      TypeOf(types.list().empty() ? "" : types.list().front().text());
  call->type = type.name;
  call->count = std::max(ElementsOf(entry["input_sizes"]),
                         ElementsOf(entry["output_sizes"]));
  call->bytes = *call->count * type.bytes;
}

JobCall CallOf(const Value& entry) {
  const std::string& name = entry["profiling_name"].text();
  const bool ours = !entry["operator"].is_null();
  JobCall call{.message = entry["is_p2p"].truth(),
               .kind = KindOf(name),
               .algorithm = entry["algorithm"].text(),
               .state = StateOf(entry),
               .created_ns = entry["time_created_ns"].number(),
               .started_ns = entry["time_discovered_started_ns"].number(),
               .finished_ns = entry["time_discovered_completed_ns"].number()};
  call.sequence = static_cast<uint32_t>(
      entry[call.message ? "p2p_seq_id" : "collective_seq_id"].number());
  FillSizes(entry, &call);
  if (call.state == JobCall::kFailed)
    call.finished_ns = entry["failed_ns"].number();
  if (ours && absl::StrContains(call.kind, "reduce"))
    call.op = entry["operator"].text();
  if (ours) call.peer = entry["peer"].number();
  if (call.message) {
    call.peer = PeerOf(name);
    if (ours) call.tag = entry["tag"].number();
  }
  const bool uneven =
      ours ? absl::StrContains(call.kind, "_v") : !SizesAgree(call.kind);
  if (uneven || call.kind == "barrier") call.count = std::nullopt;
  return call;
}

// "[0, 1, 2]"
std::vector<int> RanksIn(const std::string& text) {
  std::vector<int> ranks;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar("[], "), absl::SkipEmpty())) {
    int rank = 0;
    if (absl::SimpleAtoi(word, &rank)) ranks.push_back(rank);
  }
  return ranks;
}

// How far a member is, by what the library says of it, else by its calls.
void Count(const Value& status, Member* member) {
  if (!status.is_null()) {
    member->scheduled =
        static_cast<uint32_t>(status["last_enqueued_collective"].number());
    member->completed =
        static_cast<uint32_t>(status["last_completed_collective"].number());
    return;
  }
  bool first = true;
  for (const JobCall& call : member->calls) {
    if (call.message) continue;
    if (std::exchange(first, false)) {
      member->scheduled = call.sequence;
      member->completed = call.sequence - 1;
    }
    if (Ahead(call.sequence, member->scheduled) > 0)
      member->scheduled = call.sequence;
    if (call.state == JobCall::kCompleted &&
        call.sequence == member->completed + 1)
      member->completed = call.sequence;
  }
}

// Seconds are enough where a dump doesn't say when it was made.
int64_t FileTimeNs(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return 0;
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 +
         status.st_mtim.tv_nsec;
}

int64_t LatestNs(const Member& member) {
  int64_t latest = 0;
  for (const JobCall& call : member.calls)
    latest = std::max({latest, call.created_ns, call.finished_ns});
  return latest;
}

absl::StatusOr<int> RankOf(const Value& dump, const std::string& path) {
  if (!dump["rank"].is_null()) return static_cast<int>(dump["rank"].number());
  const size_t end = path.find_last_not_of("0123456789");
  int rank = 0;
  if (absl::SimpleAtoi(path.substr(end + 1), &rank)) return rank;
  return absl::InvalidArgumentError(
      "its name doesn't end in the rank, as PyTorch's dumps do");
}

}  // namespace

absl::Status AddDump(const std::string& path, Job* job) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return absl::NotFoundError("it can't be read");
  ASSIGN_OR_RETURN(const Value dump, ParseDump(text));
  if (!dump.is_fields() || dump["entries"].is_null() ||
      !dump["pg_config"].is_fields())
    return absl::InvalidArgumentError("it isn't a dump of calls");
  ASSIGN_OR_RETURN(const int rank, RankOf(dump, path));
  for (const auto& [name, group] : dump["pg_config"].fields()) {
    Member member{.rank = rank,
                  .host = dump["host"].text(),
                  .pid = dump["pid"].number(),
                  .file = path,
                  .cause = dump["cause"].text()};
    for (const Value& entry : dump["entries"].list()) {
      const auto& owner = entry["process_group"].list();
      if (!owner.empty() && owner.front().text() == name)
        member.calls.push_back(CallOf(entry));
    }
    const bool ours = !dump["communicator"].is_null();
    Count(ours ? dump["pg_status"]["0"] : Value(), &member);
    member.read_ns =
        std::max(dump["dumped_ns"].is_null() ? FileTimeNs(path)
                                             : dump["dumped_ns"].number(),
                 LatestNs(member));
    AddMember({.id = dump["communicator"].text(),
               .name = name,
               .ranks = RanksIn(group["ranks"].text())},
              std::move(member), job);
  }
  return absl::OkStatus();
}

}  // namespace trnccl::cli
