// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bindings/cli/measure.h"
#include "bindings/cli/stopwatch.h"
#include "ccl/base/status_macros.h"

namespace trnccl::cli {
namespace {

constexpr size_t kShortBytes = 8;
constexpr int kBurst = 4;   // fewer than a link takes
constexpr int kTurns = 50;  // of a window that's timed

absl::Status SendShort(Wire& wire) {
  ASSIGN_OR_RETURN(std::byte * slice, wire.Reserve(kShortBytes));
  std::memset(slice, 1, kShortBytes);
  wire.Send(kShortBytes);
  return absl::OkStatus();
}

absl::Status TakeShort(Wire& wire) {
  RETURN_IF_ERROR(wire.Receive().status());
  wire.Release();
  return absl::OkStatus();
}

// Seconds of a message, of several sent without waiting.
absl::StatusOr<double> TimeBurst(Wire& wire) {
  const Stopwatch watch;
  for (int i = 0; i < kBurst; ++i) {
    std::byte* slice = wire.TryReserve(kShortBytes);
    if (slice == nullptr)
      return absl::InternalError(
          absl::StrCat("a link took only ", i, " messages"));
    std::memset(slice, 1, kShortBytes);
    wire.Send(kShortBytes);
  }
  const double seconds = watch.seconds() / kBurst;
  for (int i = 0; i < kBurst; ++i) RETURN_IF_ERROR(TakeShort(wire));
  RETURN_IF_ERROR(wire.Drain());
  return seconds;
}

// Half a round trip. Both see the same.
absl::StatusOr<double> TimePingPong(const Seat& seat, Wire& wire) {
  const Stopwatch watch;
  for (int turn = 0; turn < kTurns; ++turn) {
    if (seat.rank() == 0) RETURN_IF_ERROR(SendShort(wire));
    RETURN_IF_ERROR(TakeShort(wire));
    if (seat.rank() == 1) RETURN_IF_ERROR(SendShort(wire));
  }
  return watch.seconds() / (2 * kTurns);
}

absl::StatusOr<double> TimeExchange(Wire& wire) {
  const Stopwatch watch;
  for (int turn = 0; turn < kTurns; ++turn) {
    RETURN_IF_ERROR(SendShort(wire));
    RETURN_IF_ERROR(TakeShort(wire));
  }
  return watch.seconds() / kTurns;
}

}  // namespace

absl::Status MeasureMessages(Seat& seat, Wire& wire, const Effort& effort,
                             Measured* measured) {
  std::vector<double> sends;
  std::vector<double> ping_pongs;
  std::vector<double> exchanges;
  for (int i = 0; i < effort.repeats; ++i) {
    RETURN_IF_ERROR(seat.Meet());
    ASSIGN_OR_RETURN(sends.emplace_back(), TimeBurst(wire));
    ASSIGN_OR_RETURN(ping_pongs.emplace_back(), TimePingPong(seat, wire));
    ASSIGN_OR_RETURN(exchanges.emplace_back(), TimeExchange(wire));
  }
  measured->send = Median(sends);
  measured->half_round_trip = Median(ping_pongs);
  measured->exchange = Median(exchanges);
  return absl::OkStatus();
}

}  // namespace trnccl::cli
