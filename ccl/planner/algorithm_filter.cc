// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/planner/algorithm_filter.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

// What one entry says: of these collectives, only or none of these names.
struct Entry {
  std::set<Collective> collectives;
  std::set<std::string> names;
  bool forbids = false;
};

absl::Status Wrong(const std::string& entry, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("TRNCCL_ALGORITHM: \"", entry, "\": ", why));
}

std::string NamesOf(const std::set<Collective>& collectives) {
  std::set<std::string> names;
  for (const Algorithm& algorithm : Catalog())
    if (collectives.contains(algorithm.collective))
      names.insert(std::string(algorithm.name));
  return absl::StrJoin(names, ", ");
}

std::set<Collective> AllCollectives() {
  std::set<Collective> all;
  for (const Algorithm& algorithm : Catalog()) all.insert(algorithm.collective);
  return all;
}

absl::StatusOr<std::set<Collective>> CollectiveCalled(
    const std::string& name, const std::string& entry) {
  std::set<std::string> known;
  for (const Collective collective : AllCollectives()) {
    if (Name(collective) == name) return std::set<Collective>{collective};
    known.insert(std::string(Name(collective)));
  }
  return Wrong(
      entry, absl::StrCat("no collective is called \"", name, "\"; there are ",
                          absl::StrJoin(known, ", ")));
}

absl::StatusOr<Entry> ParseEntry(const std::string& text) {
  Entry entry;
  std::string names = text;
  const size_t colon = text.find(':');
  entry.collectives = AllCollectives();
  if (colon != std::string::npos) {
    ASSIGN_OR_RETURN(entry.collectives,
                     CollectiveCalled(text.substr(0, colon), text));
    names = text.substr(colon + 1);
  }
  entry.forbids = names.starts_with('^');
  if (entry.forbids) names.erase(0, 1);
  const std::vector<std::string> listed = absl::StrSplit(names, ',');
  for (const std::string& name : listed) {
    const bool known = std::any_of(
        Catalog().begin(), Catalog().end(), [&](const Algorithm& algorithm) {
          return algorithm.name == name &&
                 entry.collectives.contains(algorithm.collective);
        });
    if (!known) {
      return Wrong(text,
                   absl::StrCat("no algorithm is called \"", name,
                                "\"; there are ", NamesOf(entry.collectives)));
    }
    entry.names.insert(name);
  }
  return entry;
}

// Whether the entry speaks of the row's collective at all: without a
// collective, one that has none of the names isn't meant.
bool Concerns(const Entry& entry, const Algorithm& row) {
  if (!entry.collectives.contains(row.collective)) return false;
  return std::any_of(Catalog().begin(), Catalog().end(),
                     [&](const Algorithm& other) {
                       return other.collective == row.collective &&
                              entry.names.contains(std::string(other.name));
                     });
}

}  // namespace

absl::StatusOr<AlgorithmFilter> AlgorithmFilter::Parse(std::string_view text) {
  AlgorithmFilter filter;
  if (text.empty()) return filter;
  const std::vector<std::string> parts =
      absl::StrSplit(std::string(text), ';', absl::SkipWhitespace());
  for (const std::string& part : parts) {
    ASSIGN_OR_RETURN(const Entry entry, ParseEntry(part));
    for (const Algorithm& row : Catalog()) {
      const bool named = entry.names.contains(std::string(row.name));
      if (Concerns(entry, row) && named == entry.forbids)
        filter.forbidden_.push_back(&row);
      if (Concerns(entry, row) && named && !entry.forbids)
        filter.named_.push_back(&row);
    }
  }
  for (const Collective collective : AllCollectives()) {
    const bool left = std::any_of(
        Catalog().begin(), Catalog().end(), [&](const Algorithm& row) {
          return row.collective == collective && filter.Allows(row);
        });
    if (!left)
      return Wrong(std::string(text),
                   absl::StrCat("it leaves no algorithm for ",
                                std::string(Name(collective))));
  }
  return filter;
}

bool AlgorithmFilter::Names(Collective collective) const {
  return std::any_of(named_.begin(), named_.end(), [&](const Algorithm* row) {
    return row == FindAlgorithm(collective, row->name);
  });
}

bool AlgorithmFilter::Allows(const Algorithm& algorithm) const {
  return std::find(forbidden_.begin(), forbidden_.end(), &algorithm) ==
         forbidden_.end();
}

}  // namespace trnccl
