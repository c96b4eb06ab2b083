// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <unistd.h>

#include <cstring>
#include <vector>

#include "bindings/cli/measure.h"
#include "bindings/cli/stopwatch.h"
#include "ccl/base/status_macros.h"
#include "transports/shm/process_memory.h"

namespace trnccl::cli {
namespace {

absl::StatusOr<shm::ProcessPointer> SwapAddress(
    Seat& seat, const std::vector<std::byte>& memory) {
  const shm::ProcessPointer mine = {
      .pid = getpid(), .address = reinterpret_cast<uint64_t>(memory.data())};
  std::string text(sizeof(mine), '\0');
  std::memcpy(text.data(), &mine, sizeof(mine));
  ASSIGN_OR_RETURN(const std::string swapped, seat.Swap(text));
  shm::ProcessPointer theirs;
  std::memcpy(&theirs, swapped.data(), sizeof(theirs));
  return theirs;
}

}  // namespace

absl::Status MeasurePeerCopy(Seat& seat, Wire& wire, const Effort& effort,
                             Measured* measured) {
  // Where one may and the other may not, neither does.
  ASSIGN_OR_RETURN(
      const std::string allowed,
      seat.Swap(wire.transport().traits().peer_memory ? "yes" : "no"));
  if (allowed == "no" || !wire.transport().traits().peer_memory)
    return absl::OkStatus();
  std::vector<std::byte> memory(kBufferBytes);
  // One piece of it: an engine folds out of the same place again and again.
  std::vector<std::byte> target(kSizes.back());
  ASSIGN_OR_RETURN(const shm::ProcessPointer source, SwapAddress(seat, memory));
  for (size_t size = 0; size < kSizes.size(); ++size) {
    const size_t bytes = kSizes[size];
    std::vector<double> seconds;
    size_t at = 0;
    for (int i = 0; i < effort.repeats; ++i) {
      if (at == 0) std::memset(memory.data(), i + 1, kBufferBytes);
      RETURN_IF_ERROR(seat.Meet());
      const Stopwatch watch;
      RETURN_IF_ERROR(
          shm::ReadProcess({.pid = source.pid, .address = source.address + at},
                           {target.data(), bytes}));
      seconds.push_back(watch.seconds());
      RETURN_IF_ERROR(seat.Meet());
      at = (at + bytes) % kBufferBytes;
    }
    measured->peer_copy[size] = Median(seconds);
  }
  return absl::OkStatus();
}

}  // namespace trnccl::cli
