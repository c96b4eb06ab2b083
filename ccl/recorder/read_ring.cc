// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Reading a ring from outside. Nothing in it is trusted: neither sizes, nor
// numbers of an enumeration, nor texts.
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "ccl/recorder/call_log.h"

namespace trnccl {
namespace {

using Slots = std::unique_ptr<CallSlot[]>;

constexpr int32_t kMostRanks = 1 << 20;  // that a report may be about

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;

// Printable, so that it does nothing to a terminal.
template <size_t kBytes>
std::string PlainText(const char (&text)[kBytes]) {
  std::string plain(text, strnlen(text, kBytes));
  for (char& c : plain)
    if (c < ' ' || c > '~') c = '?';
  return plain;
}

template <typename T>
std::span<std::byte> BytesOf(T* objects, size_t count = 1) {
  return {reinterpret_cast<std::byte*>(objects), count * sizeof(T)};
}

absl::Status CheckHeader(const CallRingHeader& header, const RingPlace& place) {
  if (header.magic.load(kRelaxed) != kRingMagic)
    return absl::InvalidArgumentError("its calls aren't there yet");
  if (header.version != kRingVersion ||
      header.header_bytes != sizeof(CallRingHeader) ||
      header.slot_bytes != sizeof(CallSlot))
    return absl::InvalidArgumentError(absl::StrCat(
        "its calls have layout ", header.version, ", this tool reads layout ",
        kRingVersion, "; take the tool of its release"));
  const uint64_t slots_bytes = uint64_t{header.slots} * sizeof(CallSlot);
  if (!std::has_single_bit(header.slots) || header.slots > kMostRingCalls ||
      slots_bytes > place.bytes - sizeof(CallRingHeader))
    return absl::InvalidArgumentError(absl::StrCat(
        "it claims ", header.slots, " calls in ", place.bytes, " bytes"));
  if (header.ranks < 1 || header.ranks > kMostRanks || header.rank < 0 ||
      header.rank >= header.ranks)
    return absl::InvalidArgumentError(absl::StrCat(
        "it claims to be rank ", header.rank, " of ", header.ranks));
  if (header.created_ns <= 0 || header.created_ns > NowNs())
    return absl::InvalidArgumentError("it claims a time that's still to come");
  return absl::OkStatus();
}

bool IsWritable(const CallSlot& slot) {
  const auto kind = slot.kind.load(kRelaxed);
  const bool known = static_cast<int>(kind) < kCollectives ||
                     kind == CallKind::kSend || kind == CallKind::kReceive;
  return known && static_cast<int>(slot.type.load(kRelaxed)) < kDataTypes &&
         static_cast<int>(slot.op.load(kRelaxed)) < kReduceOps &&
         slot.state.load(kRelaxed) <= CallState::kFailed &&
         slot.algorithm.load(kRelaxed) < kMostAlgorithms;
}

CallLog LogOf(const CallRingHeader& header) {
  CallLog log{
      .owner = {.membership = {.rank = header.rank, .ranks = header.ranks},
                .name = PlainText(header.name),
                .description = PlainText(header.description),
                .hostname = PlainText(header.hostname),
                .pid = header.pid,
                .cookie = header.cookie,
                .timeout_ms = header.timeout_ms},
      .last_scheduled = header.last_scheduled.load(kRelaxed),
      .last_started = header.last_started.load(kRelaxed),
      .last_completed = header.last_completed.load(kRelaxed)};
  if (header.failed.load(kRelaxed)) log.cause = PlainText(header.cause);
  return log;
}

}  // namespace

LoggedCall LoggedFrom(const CallSlot& slot, const CallRingHeader& header,
                      const TickDates& dates) {
  return {
      .call = slot.stamp.load(kAcquire) / 2 - 1,
      .kind = slot.kind.load(kAcquire),
      .type = slot.type.load(kAcquire),
      .op = slot.op.load(kAcquire),
      .state = slot.state.load(kAcquire),
      .count = slot.count.load(kAcquire),
      .peer = slot.peer.load(kAcquire),
      .tag = slot.tag.load(kAcquire),
      .sequence = slot.sequence.load(kAcquire),
      .algorithm = PlainText(header.algorithms[slot.algorithm.load(kAcquire)]),
      .created_ns = dates.DateNs(slot.created_ticks.load(kAcquire)),
      .started_ns = dates.DateOr0(slot.started_ticks.load(kAcquire)),
      .finished_ns = dates.DateOr0(slot.finished_ticks.load(kAcquire))};
}

absl::StatusOr<CallLog> ReadCallRing(const RingPlace& place,
                                     const ReadMemory& read) {
  if (place.bytes < sizeof(CallRingHeader))
    return absl::InvalidArgumentError(
        absl::StrCat("its calls have no header in ", place.bytes, " bytes"));
  auto header = std::make_unique<CallRingHeader>();
  RETURN_IF_ERROR(read(place.address, BytesOf(header.get())));
  RETURN_IF_ERROR(CheckHeader(*header, place));
  const uint32_t slots = header->slots;
  // The stamps before, what they stamp, and the stamps after. A copy has no
  // order within, so it takes three.
  Slots copies[3];
  for (Slots& copy : copies) {
    copy = std::make_unique<CallSlot[]>(slots);
    RETURN_IF_ERROR(read(place.address + sizeof(CallRingHeader),
                         BytesOf(copy.get(), slots)));
  }
  // Again: the table of algorithms may have grown.
  RETURN_IF_ERROR(read(place.address, BytesOf(header.get())));
  RETURN_IF_ERROR(CheckHeader(*header, place));
  CallLog log = LogOf(*header);
  const TickDates dates({header->created_ticks, header->created_ns});
  log.read_ns = dates.now_ns();
  for (uint32_t i = 0; i < slots; ++i) {
    const uint64_t stamp = copies[0][i].stamp.load(kRelaxed);
    if (stamp == 0 || stamp % 2 != 0 || (stamp / 2 - 1) % slots != i ||
        stamp != copies[1][i].stamp.load(kRelaxed) ||
        stamp != copies[2][i].stamp.load(kRelaxed) || !IsWritable(copies[1][i]))
      continue;
    log.calls.push_back(LoggedFrom(copies[1][i], *header, dates));
  }
  std::sort(
      log.calls.begin(), log.calls.end(),
      [](const LoggedCall& a, const LoggedCall& b) { return a.call < b.call; });
  return log;
}

}  // namespace trnccl
