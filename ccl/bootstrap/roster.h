// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Who has arrived at the root, and whether they can make a communicator: the
// judgement over all ranks' hellos. No I/O.
//
// Thread rule: one thread.
//
//   Roster roster(own_hello);
//   const int index = roster.Add(hello);
//   RETURN_IF_ERROR(roster.Judgement());
//   if (!roster.complete()) Wait();
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ccl/bootstrap/hello.h"

namespace trnccl {

class Roster {
 public:
  // The root's own hello: the measure for the others.
  explicit Roster(JoinHello own);

  // Takes a rank in; returns its place in the order of arrival.
  int Add(JoinHello hello);

  // OK until something doesn't fit: a rank out of range or twice, numbers of
  // ranks that differ, a line of the agreement that differs. The first such,
  // with both ranks and both values.
  const absl::Status& Judgement() const { return judgement_; }

  int arrived() const { return static_cast<int>(arrivals_.size()); }
  // As many have come as any of them expects.
  bool complete() const { return arrived() >= expected_; }

  const JoinHello& at(int index) const {
    return arrivals_[static_cast<size_t>(index)];
  }

  // "1 of 4 ranks came; missing: ranks 1, 2, 3"
  std::string MissingText() const;

 private:
  absl::Status Judge(const JoinHello& hello) const;

  std::vector<JoinHello> arrivals_;
  std::vector<int> index_of_rank_;  // -1: not here
  int expected_;
  absl::Status judgement_;
};

}  // namespace trnccl
