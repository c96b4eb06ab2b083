// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/recorder/recorder.h"

#include <time.h>

#include <bit>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ccl/base/check.h"

namespace trnccl {
namespace {

// The form of PyTorch's dump that this one follows.
constexpr char kFormatVersion[] = "2.10";

bool IsMessage(CallKind kind) { return kind >= CallKind::kSend; }

// Names and types as the analyser knows them.
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

struct Sizes {
  uint64_t input;
  uint64_t output;
};

Sizes SizesOf(CallKind kind, uint64_t count, int ranks) {
  const uint64_t all = count * static_cast<uint64_t>(ranks);
  switch (static_cast<Collective>(kind)) {
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

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", c);
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('"');
  return quoted;
}

// What to add to the monotonic clock to get the date.
int64_t DateOffsetNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - NowNs();
}

struct TimeScale {
  TickAnchor first;
  TickAnchor last;
  int64_t offset_ns;

  int64_t DateNs(uint64_t ticks) const {
    return TicksToNs(ticks, first, last) + offset_ns;
  }
  std::string DateOrNull(uint64_t ticks) const {
    return ticks == 0 ? "null" : absl::StrCat(DateNs(ticks));
  }
};

// Messages name both sides: "send 0->1", "recv 0<-1".
std::string ProfilingName(CallKind kind, int rank, int peer) {
  // The analyser takes calls for collectives by this prefix alone.
  std::string name = absl::StrCat("nccl:", AnalyserName(kind));
  if (!IsMessage(kind)) return name;
  return absl::StrCat(name, " ", rank, kind == CallKind::kSend ? "->" : "<-",
                      peer);
}

}  // namespace

struct Recorder::Entry {
  uint64_t call;
  RecordedCall what;
  uint64_t created_ticks;
  uint64_t started_ticks;
  uint64_t finished_ticks;
  const char* algorithm;
  uint32_t sequence;
  State state;

  std::string Render(const Owner& owner, const TimeScale& scale) const;
};

Recorder::Recorder(Owner owner, uint32_t calls)
    : owner_(std::move(owner)),
      mask_(std::bit_ceil(uint64_t{calls}) - 1),
      first_anchor_(TickAnchor::Now()),
      slots_(std::make_unique<Slot[]>(mask_ + 1)) {
  TRNCCL_CHECK(calls > 0);
}

// The field stores are releases, so that none becomes visible before the odd
// stamp; the reader's loads are acquires for the same reason.
inline uint64_t Recorder::Enter(const RecordedCall& call,
                                const Beginning& beginning) {
  constexpr auto kRelease = std::memory_order_release;
  const uint64_t id = calls_.load(std::memory_order_relaxed);
  uint32_t sequence;
  if (IsMessage(call.kind)) {
    sequence = ++last_message_;
  } else {
    sequence = last_scheduled_.load(std::memory_order_relaxed) + 1;
    last_scheduled_.store(sequence, std::memory_order_relaxed);
  }
  Slot& slot = SlotOf(id);
  slot.stamp.store(2 * id + 1, std::memory_order_relaxed);
  slot.created_ticks.store(beginning.created_ticks, kRelease);
  slot.started_ticks.store(beginning.started_ticks, kRelease);
  slot.finished_ticks.store(0, kRelease);
  slot.count.store(call.count, kRelease);
  slot.algorithm.store(beginning.algorithm, kRelease);
  slot.peer.store(call.peer, kRelease);
  slot.tag.store(call.tag, kRelease);
  slot.sequence.store(sequence, kRelease);
  slot.kind.store(call.kind, kRelease);
  slot.type.store(call.type, kRelease);
  slot.op.store(call.op, kRelease);
  slot.state.store(beginning.state, kRelease);
  slot.stamp.store(2 * (id + 1), kRelease);
  calls_.store(id + 1, kRelease);
  return id;
}

uint64_t Recorder::Schedule(const RecordedCall& call) {
  return Enter(call, {.created_ticks = ReadTicks()});
}

uint64_t Recorder::Begin(const RecordedCall& call, const char* algorithm) {
  const uint64_t now = ReadTicks();
  const uint64_t id = Enter(call, {.state = State::kStarted,
                                   .started_ticks = now,
                                   .created_ticks = now,
                                   .algorithm = algorithm});
  if (!IsMessage(call.kind)) {
    last_started_.store(last_scheduled_.load(std::memory_order_relaxed),
                        std::memory_order_relaxed);
  }
  return id;
}

void Recorder::Start(uint64_t call, const char* algorithm) {
  Slot& slot = SlotOf(call);
  if (slot.stamp.load(std::memory_order_relaxed) != 2 * (call + 1)) return;
  slot.started_ticks.store(ReadTicks(), std::memory_order_release);
  slot.algorithm.store(algorithm, std::memory_order_release);
  slot.state.store(State::kStarted, std::memory_order_release);
  if (!IsMessage(slot.kind.load(std::memory_order_relaxed))) {
    last_started_.store(slot.sequence.load(std::memory_order_relaxed),
                        std::memory_order_relaxed);
  }
}

void Recorder::Finish(uint64_t call, State state) {
  Slot& slot = SlotOf(call);
  if (slot.stamp.load(std::memory_order_relaxed) != 2 * (call + 1)) return;
  slot.finished_ticks.store(ReadTicks(), std::memory_order_release);
  slot.state.store(state, std::memory_order_release);
  if (state == State::kCompleted &&
      !IsMessage(slot.kind.load(std::memory_order_relaxed))) {
    last_completed_.store(slot.sequence.load(std::memory_order_relaxed),
                          std::memory_order_relaxed);
  }
}

bool Recorder::ReadSlot(uint64_t call, Entry* entry) const {
  constexpr auto kAcquire = std::memory_order_acquire;
  const Slot& slot = SlotOf(call);
  if (slot.stamp.load(kAcquire) != 2 * (call + 1)) return false;
  entry->call = call;
  entry->state = slot.state.load(kAcquire);
  entry->created_ticks = slot.created_ticks.load(kAcquire);
  entry->started_ticks = slot.started_ticks.load(kAcquire);
  entry->finished_ticks = slot.finished_ticks.load(kAcquire);
  entry->algorithm = slot.algorithm.load(kAcquire);
  entry->sequence = slot.sequence.load(kAcquire);
  entry->what = {.kind = slot.kind.load(kAcquire),
                 .type = slot.type.load(kAcquire),
                 .op = slot.op.load(kAcquire),
                 .count = slot.count.load(kAcquire),
                 .peer = slot.peer.load(kAcquire),
                 .tag = slot.tag.load(kAcquire)};
  return slot.stamp.load(std::memory_order_relaxed) == 2 * (call + 1);
}

std::string Recorder::Entry::Render(const Owner& owner,
                                    const TimeScale& scale) const {
  const bool message = IsMessage(what.kind);
  const bool done = state == State::kCompleted;
  const bool failed = state == State::kFailed;
  const Sizes sizes = SizesOf(what.kind, what.count, owner.membership.ranks);
  const char* reached = done                ? "completed"
                        : started_ticks > 0 ? "started"
                                            : "scheduled";
  const char* type = AnalyserName(what.type);
  const double duration_ms =
      done ? static_cast<double>(scale.DateNs(finished_ticks) -
                                 scale.DateNs(created_ticks)) /
                 1e6
           : 0;
  return absl::StrCat(
      "{\"record_id\":", call, ",\"pg_id\":0,\"process_group\":[",
      Quoted(owner.name), ",", Quoted(owner.description),
      "],\"collective_seq_id\":", message ? 0 : sequence,
      ",\"p2p_seq_id\":", message ? sequence : 0, ",\"op_id\":", call + 1,
      ",\"profiling_name\":",
      Quoted(ProfilingName(what.kind, owner.membership.rank, what.peer)),
      ",\"time_created_ns\":", scale.DateNs(created_ticks),
      ",\"time_discovered_started_ns\":", scale.DateOrNull(started_ticks),
      ",\"time_discovered_completed_ns\":",
      scale.DateOrNull(done ? finished_ticks : 0),
      ",\"duration_ms\":", duration_ms, ",\"input_sizes\":[[", sizes.input,
      "]],\"input_dtypes\":[\"", type, "\"],\"output_sizes\":[[", sizes.output,
      "]],\"output_dtypes\":[\"", type, "\"],\"state\":\"", reached,
      "\",\"retired\":", done || failed ? "true" : "false",
      ",\"timeout_ms\":", owner.timeout_ms,
      ",\"is_p2p\":", message ? "true" : "false", ",\"frames\":[]",
      // Beyond what PyTorch records.
      ",\"failed\":", failed ? "true" : "false",
      ",\"algorithm\":", Quoted(algorithm == nullptr ? "" : algorithm),
      ",\"operator\":\"",
      absl::string_view(Name(what.op).data(), Name(what.op).size()),
      "\",\"peer\":", what.peer, ",\"tag\":", what.tag, "}");
}

std::string Recorder::Dump() const {
  const uint64_t end = calls_.load(std::memory_order_acquire);
  const uint64_t begin = end > mask_ ? end - mask_ - 1 : 0;
  std::vector<Entry> entries;
  for (uint64_t call = begin; call < end; ++call) {
    Entry entry;
    if (ReadSlot(call, &entry)) entries.push_back(entry);
  }
  // Taken last, so that all ticks lie between the two anchors.
  const TimeScale scale{first_anchor_, TickAnchor::Now(), DateOffsetNs()};
  std::vector<int> ranks;
  for (int i = 0; i < owner_.membership.ranks; ++i) ranks.push_back(i);
  std::string text = absl::StrCat(
      "{\"version\":\"", kFormatVersion, "\",\"rank\":", owner_.membership.rank,
      ",\"pg_config\":{", Quoted(owner_.name),
      ":{\"name\":", Quoted(owner_.name),
      ",\"desc\":", Quoted(owner_.description), ",\"ranks\":\"[",
      absl::StrJoin(ranks, ", "),
      "]\"}},\"pg_status\":{\"0\":{\"last_enqueued_collective\":",
      last_scheduled_.load(std::memory_order_relaxed),
      ",\"last_started_collective\":",
      last_started_.load(std::memory_order_relaxed),
      ",\"last_completed_collective\":",
      last_completed_.load(std::memory_order_relaxed), "}},\"entries\":[");
  for (size_t i = 0; i < entries.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? "," : "", "\n",
                    entries[i].Render(owner_, scale));
  }
  return absl::StrCat(text, "]}\n");
}

}  // namespace trnccl
