// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/recorder/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "ccl/base/log.h"

namespace trnccl {
namespace {

constexpr auto kRelease = std::memory_order_release;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelaxed = std::memory_order_relaxed;

template <size_t kBytes>
void CopyText(std::string_view text, char (&into)[kBytes]) {
  std::memcpy(into, text.data(), std::min(text.size(), kBytes));
}

template <size_t kBytes>
std::string_view TextIn(const char (&text)[kBytes]) {
  return {text, strnlen(text, kBytes)};
}

CallLogOwner OfThisProcess(CallLogOwner owner) {
  owner.pid = getpid();
  return owner;
}

}  // namespace

Recorder::Recorder(Options options)
    : owner_(OfThisProcess(std::move(options.owner))),
      dump_prefix_(std::move(options.dump_prefix)),
      mask_(std::bit_ceil(uint64_t{options.calls}) - 1) {
  TRNCCL_CHECK(options.calls > 0 && options.calls <= kMostRingCalls);
  std::byte* memory =
      Reserve(sizeof(CallRingHeader) + (mask_ + 1) * sizeof(CallSlot));
  header_ = new (memory) CallRingHeader;
  // A constructor for each: an array might put its length in front.
  slots_ = reinterpret_cast<CallSlot*>(memory + sizeof(CallRingHeader));
  for (uint64_t i = 0; i <= mask_; ++i) new (&slots_[i]) CallSlot;
  const TickAnchor now = TickAnchor::Now();
  header_->header_bytes = sizeof(CallRingHeader);
  header_->slots = static_cast<uint32_t>(mask_ + 1);
  header_->cookie = owner_.cookie;
  header_->rank = owner_.membership.rank;
  header_->ranks = owner_.membership.ranks;
  header_->pid = owner_.pid;
  header_->timeout_ms = owner_.timeout_ms;
  header_->created_ticks = now.ticks;
  header_->created_ns = now.ns;
  CopyText(owner_.name, header_->name);
  CopyText(owner_.description, header_->description);
  CopyText(owner_.hostname, header_->hostname);
  header_->magic.store(kRingMagic, kRelease);
}

std::byte* Recorder::Reserve(size_t bytes) {
  absl::StatusOr<SharedFile> file = SharedFile::Create(kRingName);
  absl::Status status = file.status();
  if (file.ok()) {
    absl::StatusOr<SharedMapping> mapping =
        file->Resize({.bytes = bytes, .filled_bytes = bytes});
    status = mapping.status();
    if (mapping.ok()) return shared_.emplace(*std::move(mapping)).base();
  }
  TRNCCL_LOG(LogLevel::kInfo, LogContext(owner_.membership, owner_.name),
             "trnccl status won't see its calls: ", status.message());
  own_ = std::make_unique<CallSlot[]>(bytes / sizeof(CallSlot));
  return reinterpret_cast<std::byte*>(own_.get());
}

uint16_t Recorder::NumberOf(std::string_view algorithm) {
  if (algorithm.empty()) return 0;
  for (uint16_t i = 1; i < kMostAlgorithms; ++i) {
    auto& entry = header_->algorithms[i];
    if (TextIn(entry) == algorithm.substr(0, sizeof(entry))) return i;
    if (entry[0] != '\0') continue;
    CopyText(algorithm, entry);
    return i;
  }
  return 0;
}

// The field stores are releases, so that none becomes visible before the odd
// stamp; the reader's loads are acquires for the same reason.
inline uint64_t Recorder::Enter(const RecordedCall& call,
                                const Beginning& beginning) {
  const uint64_t id = header_->calls.load(kRelaxed);
  uint32_t sequence;
  if (IsMessage(call.kind)) {
    sequence = ++last_message_;
  } else {
    sequence = header_->last_scheduled.load(kRelaxed) + 1;
    header_->last_scheduled.store(sequence, kRelaxed);
  }
  CallSlot& slot = SlotOf(id);
  slot.stamp.store(2 * id + 1, kRelaxed);
  slot.created_ticks.store(beginning.created_ticks, kRelease);
  slot.started_ticks.store(beginning.started_ticks, kRelease);
  slot.finished_ticks.store(0, kRelease);
  slot.count.store(call.count, kRelease);
  slot.peer.store(call.peer, kRelease);
  slot.tag.store(call.tag, kRelease);
  slot.sequence.store(sequence, kRelease);
  slot.algorithm.store(call.algorithm, kRelease);
  slot.kind.store(call.kind, kRelease);
  slot.type.store(call.type, kRelease);
  slot.op.store(call.op, kRelease);
  slot.state.store(beginning.state, kRelease);
  slot.stamp.store(2 * (id + 1), kRelease);
  header_->calls.store(id + 1, kRelease);
  return id;
}

uint64_t Recorder::Schedule(const RecordedCall& call) {
  return Enter(call, {.created_ticks = ReadTicks()});
}

uint64_t Recorder::Begin(const RecordedCall& call) {
  const uint64_t now = ReadTicks();
  const uint64_t id = Enter(call, {.state = CallState::kStarted,
                                   .started_ticks = now,
                                   .created_ticks = now});
  if (!IsMessage(call.kind)) {
    header_->last_started.store(header_->last_scheduled.load(kRelaxed),
                                kRelaxed);
  }
  return id;
}

void Recorder::Start(uint64_t call, std::string_view algorithm) {
  CallSlot& slot = SlotOf(call);
  if (slot.stamp.load(kRelaxed) != 2 * (call + 1)) return;
  slot.started_ticks.store(ReadTicks(), kRelease);
  slot.algorithm.store(NumberOf(algorithm), kRelease);
  slot.state.store(CallState::kStarted, kRelease);
  if (!IsMessage(slot.kind.load(kRelaxed)))
    header_->last_started.store(slot.sequence.load(kRelaxed), kRelaxed);
}

void Recorder::Finish(uint64_t call, CallState state) {
  CallSlot& slot = SlotOf(call);
  if (slot.stamp.load(kRelaxed) != 2 * (call + 1)) return;
  slot.finished_ticks.store(ReadTicks(), kRelease);
  slot.state.store(state, kRelease);
  if (state == CallState::kCompleted && !IsMessage(slot.kind.load(kRelaxed)))
    header_->last_completed.store(slot.sequence.load(kRelaxed), kRelaxed);
}

bool Recorder::ReadSlot(uint64_t call, const TickDates& dates,
                        LoggedCall* read) const {
  const CallSlot& slot = SlotOf(call);
  if (slot.stamp.load(kAcquire) != 2 * (call + 1)) return false;
  *read = LoggedFrom(slot, *header_, dates);
  return slot.stamp.load(kRelaxed) == 2 * (call + 1);
}

std::string Recorder::Dump() const {
  const TickDates dates({header_->created_ticks, header_->created_ns});
  CallLog log{.owner = owner_, .read_ns = dates.now_ns()};
  const uint64_t end = header_->calls.load(kAcquire);
  const uint64_t begin = end > mask_ ? end - mask_ - 1 : 0;
  for (uint64_t call = begin; call < end; ++call) {
    LoggedCall read;
    if (ReadSlot(call, dates, &read)) log.calls.push_back(std::move(read));
  }
  log.last_scheduled = header_->last_scheduled.load(kRelaxed);
  log.last_started = header_->last_started.load(kRelaxed);
  log.last_completed = header_->last_completed.load(kRelaxed);
  if (header_->failed.load(kAcquire)) log.cause = TextIn(header_->cause);
  return CallLogJson(log);
}

void Recorder::FailAll(const absl::Status& cause) {
  if (header_->failed.load(kRelaxed)) return;
  CopyText({cause.message().data(), cause.message().size()}, header_->cause);
  header_->failed.store(true, kRelease);
  if (!dump_prefix_.empty()) WriteDump();
}

// Under another name until it's whole.
void Recorder::WriteDump() const {
  const std::string path =
      absl::StrCat(dump_prefix_, absl::Hex(owner_.cookie, absl::kZeroPad8), "_",
                   owner_.membership.rank);
  const std::string unfinished = path + ".unfinished";
  std::ofstream file(unfinished);
  file << Dump();
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    TRNCCL_LOG(LogLevel::kWarn, LogContext(owner_.membership, owner_.name),
               "can't write ", path, ", as TRNCCL_DUMP_ON_FAILURE asks");
  }
}

}  // namespace trnccl
