// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/recorder/call_log.h"

#include <time.h>

#include "absl/strings/str_cat.h"
#include "ccl/base/json.h"

namespace trnccl {
namespace {

// The form of PyTorch's dump that this one follows.
constexpr char kFormatVersion[] = "2.10";

// What to add to the monotonic clock to get the date.
int64_t DateOffsetNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - NowNs();
}

std::string NumberOrNull(int64_t number) {
  return number == 0 ? "null" : absl::StrCat(number);
}

// Messages name both sides: "send 0->1", "recv 0<-1".
std::string ProfilingName(const LoggedCall& call, int rank) {
  // The analyser takes calls for collectives by this prefix alone.
  std::string name = absl::StrCat("nccl:", AnalyserName(call.kind));
  if (!IsMessage(call.kind)) return name;
  return absl::StrCat(name, " ", rank,
                      call.kind == CallKind::kSend ? "->" : "<-", call.peer);
}

std::string CallJson(const LoggedCall& call, const CallLogOwner& owner) {
  const bool message = IsMessage(call.kind);
  const bool done = call.state == CallState::kCompleted;
  const bool failed = call.state == CallState::kFailed;
  const CallSizes sizes = SizesOf(call, owner.membership.ranks);
  const char* reached = done                  ? "completed"
                        : call.started_ns > 0 ? "started"
                                              : "scheduled";
  const char* type = AnalyserName(call.type);
  const double duration_ms =
      done ? static_cast<double>(call.finished_ns - call.created_ns) / 1e6 : 0;
  return absl::StrCat(
      "{\"record_id\":", call.call, ",\"pg_id\":0,\"process_group\":[",
      JsonText(owner.name), ",", JsonText(owner.description),
      "],\"collective_seq_id\":", message ? 0 : call.sequence,
      ",\"p2p_seq_id\":", message ? call.sequence : 0,
      ",\"op_id\":", call.call + 1, ",\"profiling_name\":",
      JsonText(ProfilingName(call, owner.membership.rank)),
      ",\"time_created_ns\":", call.created_ns,
      ",\"time_discovered_started_ns\":", NumberOrNull(call.started_ns),
      ",\"time_discovered_completed_ns\":",
      NumberOrNull(done ? call.finished_ns : 0),
      ",\"duration_ms\":", duration_ms, ",\"input_sizes\":[[", sizes.input,
      "]],\"input_dtypes\":[\"", type, "\"],\"output_sizes\":[[", sizes.output,
      "]],\"output_dtypes\":[\"", type, "\"],\"state\":\"", reached,
      "\",\"retired\":", done || failed ? "true" : "false",
      ",\"timeout_ms\":", owner.timeout_ms,
      ",\"is_p2p\":", message ? "true" : "false", ",\"frames\":[]",
      // Beyond what PyTorch records.
      ",\"failed\":", failed ? "true" : "false",
      ",\"failed_ns\":", NumberOrNull(failed ? call.finished_ns : 0),
      ",\"algorithm\":", JsonText(call.algorithm),
      ",\"operator\":", JsonText(Name(call.op)), ",\"peer\":", call.peer,
      ",\"tag\":", call.tag, "}");
}

std::string RankList(int ranks) {
  std::string list = "[0";
  for (int i = 1; i < ranks; ++i) absl::StrAppend(&list, ", ", i);
  return list + "]";
}

}  // namespace

const char* AnalyserName(CallKind kind) {
  switch (static_cast<Collective>(kind)) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kReduce:
      return "reduce";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kAllGatherV:
      return "all_gather_v";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kReduceScatterV:
      return "reduce_scatter_v";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kAllToAllV:
      return "all_to_all_v_single";
    case Collective::kGather:
      return "gather";
    case Collective::kScatter:
      return "scatter";
    case Collective::kBarrier:
      return "barrier";
  }
  return kind == CallKind::kSend ? "send" : "recv";
}

const char* AnalyserName(DataType type) {
  static constexpr const char* kNames[kDataTypes] = {
      "Char",          "Byte",        "Short", "UInt16",
      "Int",           "UInt32",      "Long",  "UInt64",
      "Half",          "BFloat16",    "Float", "Double",
      "Float8_e4m3fn", "Float8_e5m2", "Bool",  "ComplexFloat",
      "ComplexDouble"};
  const auto index = static_cast<size_t>(type);
  return index < kDataTypes ? kNames[index] : "Undefined";
}

TickDates::TickDates(const TickAnchor& first)
    : first_(first), last_(TickAnchor::Now()), offset_ns_(DateOffsetNs()) {}

CallSizes SizesOf(const LoggedCall& call, int ranks) {
  const uint64_t count = call.count;
  const uint64_t all = count * static_cast<uint64_t>(ranks);
  switch (static_cast<Collective>(call.kind)) {
    case Collective::kAllGather:
    case Collective::kGather:
      return {count, all};
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return {all, count};
    case Collective::kAllToAll:
      return {all, all};
    default:
      return {count, count};
  }
}

std::string CallLogJson(const CallLog& log) {
  const CallLogOwner& owner = log.owner;
  std::string text = absl::StrCat(
      "{\"version\":\"", kFormatVersion, "\",\"rank\":", owner.membership.rank,
      // Beyond what PyTorch records.
      ",\"communicator\":\"", absl::Hex(owner.cookie, absl::kZeroPad8),
      "\",\"host\":", JsonText(owner.hostname), ",\"pid\":", owner.pid,
      ",\"dumped_ns\":", log.read_ns, ",\"cause\":", JsonText(log.cause),
      ",\"pg_config\":{", JsonText(owner.name),
      ":{\"name\":", JsonText(owner.name),
      ",\"desc\":", JsonText(owner.description), ",\"ranks\":\"",
      RankList(owner.membership.ranks),
      "\"}},\"pg_status\":{\"0\":{\"last_enqueued_collective\":",
      log.last_scheduled, ",\"last_started_collective\":", log.last_started,
      ",\"last_completed_collective\":", log.last_completed,
      "}},\"entries\":[");
  for (size_t i = 0; i < log.calls.size(); ++i)
    absl::StrAppend(&text, i > 0 ? "," : "", "\n",
                    CallJson(log.calls[i], owner));
  return absl::StrCat(text, "]}\n");
}

}  // namespace trnccl
