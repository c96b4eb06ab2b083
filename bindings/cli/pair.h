// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Two processes that measure something together, each on a processor of its own
// where there are two. They are forked here and are gone when RunPair()
// returns, however it went; they go with this process, too.
//
// Thread rule: RunPair() from a process without other threads; a Seat belongs
// to one of the two processes.
//
//   ASSIGN_OR_RETURN(auto both, RunPair<double>(
//       [](Seat& seat) { return MeasureSeconds(seat); }, deadline));
#pragma once

#include <array>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/clock.h"
#include "ccl/base/status_macros.h"

namespace trnccl::cli {

struct Board;  // memory of both

// What one of the two processes has of the pair.
class Seat {
 public:
  Seat(int rank, Board* board, Deadline deadline);

  int rank() const { return rank_; }
  int peer() const { return 1 - rank_; }
  Deadline deadline() const { return deadline_; }

  // Until the condition holds. Yields where the two share a processor.
  template <typename Condition>
  absl::Status Await(Condition condition) const {
    for (int spins = 1; !condition(); ++spins) {
      if (spins % spins_per_pause_ == 0) RETURN_IF_ERROR(Pause());
    }
    return absl::OkStatus();
  }

  // Until both are here.
  absl::Status Meet();

  // The peer's text for one's own, at most kTextBytes.
  static constexpr size_t kTextBytes = 1024;
  absl::StatusOr<std::string> Swap(const std::string& mine);

 private:
  absl::Status Pause() const;

  int rank_;
  Board* board_;
  Deadline deadline_;
  int spins_per_pause_;
};

// What each of the two returned, as bytes. An error names the process that
// failed or died, or says that the deadline passed.
absl::StatusOr<std::array<std::string, 2>> RunPairForBytes(
    absl::FunctionRef<absl::StatusOr<std::string>(Seat&)> body,
    Deadline deadline);

template <typename Result>
absl::StatusOr<std::array<Result, 2>> RunPair(
    absl::FunctionRef<absl::StatusOr<Result>(Seat&)> body, Deadline deadline) {
  static_assert(std::is_trivially_copyable_v<Result>);
  ASSIGN_OR_RETURN(const auto texts,
                   RunPairForBytes(
                       [&](Seat& seat) -> absl::StatusOr<std::string> {
                         ASSIGN_OR_RETURN(const Result result, body(seat));
                         return std::string(
                             reinterpret_cast<const char*>(&result),
                             sizeof(result));
                       },
                       deadline));
  std::array<Result, 2> results;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (texts[rank].size() != sizeof(Result))
      return absl::InternalError("a result came cut short");
    std::memcpy(&results[rank], texts[rank].data(), sizeof(Result));
  }
  return results;
}

}  // namespace trnccl::cli
