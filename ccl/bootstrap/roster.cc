// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/roster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

// Of missing ranks, in an error.
constexpr size_t kMaxListed = 32;

bool PossibleCount(int ranks) { return ranks >= 1 && ranks <= kMaxRanks; }

std::string Describe(const JoinHello& hello) {
  return absl::StrCat("rank ", hello.member.rank, " (on ", hello.host, ")");
}

// The first lines in which two agreements differ.
absl::Status CompareAgreements(const JoinHello& a, const JoinHello& b) {
  const std::vector<std::string> lines_a = absl::StrSplit(a.agreement, '\n');
  const std::vector<std::string> lines_b = absl::StrSplit(b.agreement, '\n');
  const auto [line_a, line_b] = std::mismatch(lines_a.begin(), lines_a.end(),
                                              lines_b.begin(), lines_b.end());
  if (line_a == lines_a.end() && line_b == lines_b.end()) {
    return absl::OkStatus();
  }
  const auto value = [](auto line, const auto& lines) {
    return line == lines.end() ? std::string("nothing") : *line;
  };
  return absl::FailedPreconditionError(
      absl::StrCat("ranks differ in what must be alike: ", Describe(a), " has ",
                   value(line_a, lines_a), ", ", Describe(b), " has ",
                   value(line_b, lines_b)));
}

}  // namespace

Roster::Roster(JoinHello own) {
  const Membership me = own.member;
  index_of_rank_.assign(
      static_cast<size_t>(PossibleCount(me.ranks) ? me.ranks : 1), -1);
  expected_ = static_cast<int>(index_of_rank_.size());
  Add(std::move(own));
}

int Roster::Add(JoinHello hello) {
  if (judgement_.ok()) judgement_ = Judge(hello);
  const int index = arrived();
  const Membership member = hello.member;
  if (PossibleCount(member.ranks)) {
    expected_ = std::max(expected_, member.ranks);
  }
  if (member.rank >= 0 &&
      member.rank < static_cast<int>(index_of_rank_.size())) {
    index_of_rank_[static_cast<size_t>(member.rank)] = index;
  }
  // All alike from here on; the root's own is kept as the measure.
  if (index > 0) hello.agreement.clear();
  arrivals_.push_back(std::move(hello));
  return index;
}

absl::Status Roster::Judge(const JoinHello& hello) const {
  const JoinHello& own = arrivals_.empty() ? hello : arrivals_.front();
  const Membership member = hello.member;
  if (!PossibleCount(member.ranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(hello), " was given ", member.ranks,
                     " ranks; 1 to ", kMaxRanks, " are possible"));
  }
  if (member.ranks != own.member.ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ranks differ in their number of ranks: ", Describe(own), " has ",
        own.member.ranks, ", ", Describe(hello), " has ", member.ranks));
  }
  if (member.rank < 0 || member.rank >= member.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(hello), " is out of range; with ", member.ranks,
                     " ranks, 0 to ", member.ranks - 1, " are possible"));
  }
  if (const int other = index_of_rank_[static_cast<size_t>(member.rank)];
      other >= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", member.rank, " came twice: from ", at(other).host,
        " and from ", hello.host, "; give each process a rank of its own"));
  }
  return CompareAgreements(own, hello);
}

std::string Roster::MissingText() const {
  std::vector<int> missing;
  for (size_t rank = 0; rank < index_of_rank_.size(); ++rank) {
    if (index_of_rank_[rank] < 0) missing.push_back(static_cast<int>(rank));
  }
  const size_t ranks = index_of_rank_.size();
  const size_t left_out = missing.size() - std::min(missing.size(), kMaxListed);
  const bool is_one = missing.size() == 1;
  const std::string came =
      absl::StrCat(ranks - missing.size(), " of ", ranks, " ranks came");
  missing.resize(missing.size() - left_out);
  return absl::StrCat(
      came, "; missing: rank", is_one ? " " : "s ",
      absl::StrJoin(missing, ", "),
      left_out > 0 ? absl::StrCat(" and ", left_out, " more") : "",
      is_one ? absl::StrCat("; origin: rank ", missing[0]) : "");
}

}  // namespace trnccl
