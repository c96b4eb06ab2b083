// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/communicator/outcome.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace trnccl {
namespace {

constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

// A rank that can't reach another one may just see what that one's error led
// to.
bool MayFollowFromAnother(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsNotFound(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsInvalidArgument(status);
}

// With peers, who can take no byte can't take part.
absl::Status StatusOf(const std::string& text, const Membership& me) {
  const Outcome outcome = ParseOutcome(text);
  return me.ranks > 1 && outcome.status.ok() && outcome.slice_bytes == 0
             ? absl::UnknownError(text)
             : outcome.status;
}

}  // namespace

std::string OutcomeText(const Outcome& outcome) {
  return absl::StrCat(static_cast<int>(outcome.status.code()), " ",
                      outcome.slice_bytes, " ", outcome.status.message());
}

Outcome ParseOutcome(const std::string& text) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::MaxSplits(' ', 2));
  int code = 0;
  Outcome outcome;
  if (words.size() != 3 || !absl::SimpleAtoi(words[0], &code) ||
      !absl::SimpleAtoi(words[1], &outcome.slice_bytes) || code < 0 ||
      code > kLastCode) {
    outcome.status = absl::UnknownError(text);
  } else {
    outcome.status =
        absl::Status(static_cast<absl::StatusCode>(code), words[2]);
  }
  return outcome;
}

size_t CommonSlice(const std::vector<std::string>& outcomes) {
  size_t least = SIZE_MAX;
  for (const std::string& text : outcomes)
    least = std::min(least, ParseOutcome(text).slice_bytes);
  return least;
}

absl::Status VerdictOf(const std::vector<std::string>& outcomes,
                       const Membership& me, const Topology& topology) {
  const absl::Status mine = StatusOf(outcomes[me.rank], me);
  if (!mine.ok() && !MayFollowFromAnother(mine)) return mine;
  absl::Status worst = mine;
  int origin = me.rank;
  for (int rank = 0; rank < me.ranks; ++rank) {
    const absl::Status other = StatusOf(outcomes[rank], me);
    if (other.ok() || (!worst.ok() && MayFollowFromAnother(other))) continue;
    worst = other;
    origin = rank;
    if (!MayFollowFromAnother(other)) break;
  }
  if (worst.ok() || origin == me.rank) return worst;
  return absl::UnavailableError(
      absl::StrCat("rank ", me.rank, ": ", worst.message(),
                   "; origin: ", NameOfRank(topology, origin)));
}

}  // namespace trnccl
