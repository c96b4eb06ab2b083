// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// How a benchmark's ranks meet and exchange small things around what they
// time. Never part of a measurement.
//
// Thread rule: an object belongs to one rank, that is one thread.
//
//   RETURN_IF_ERROR(team.Barrier());
//   ASSIGN_OR_RETURN(std::vector<double> times, team.Gather(my_time));
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/status_macros.h"

namespace trnccl::perf {

class Team {
 public:
  Team(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  virtual ~Team() = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  virtual absl::Status Barrier() = 0;

  // Every rank's `bytes` bytes at `mine`, one after the other, to `all`.
  virtual absl::Status GatherBytes(const void* mine, size_t bytes,
                                   void* all) = 0;

  // Every rank's value, by rank.
  template <typename T>
  absl::StatusOr<std::vector<T>> Gather(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(ranks_));
    RETURN_IF_ERROR(GatherBytes(&mine, sizeof(mine), all.data()));
    return all;
  }

 private:
  int rank_;
  int ranks_;
};

}  // namespace trnccl::perf
