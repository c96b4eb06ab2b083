// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/diagnosis.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace trnccl::cli {
namespace {

constexpr size_t kMostNamed = 16;  // ranks in a sentence

// How far members are, in half steps: a call that has begun is one, and its end
// another. Relative, since numbers wrap.
int64_t Position(const Member& member, uint32_t origin) {
  const bool within = Ahead(member.scheduled, member.completed) > 0;
  return 2 * Ahead(member.completed, origin) + (within ? 1 : 0);
}

using Members = std::vector<const Member*>;

std::vector<int> RanksOf(const Members& members) {
  std::vector<int> ranks;
  for (const Member* member : members) ranks.push_back(member->rank);
  return ranks;
}

// Of members at one position, the one that's been there for the longest.
const Member& Longest(const Members& members) {
  const auto age = [](const Member* member) {
    const JobCall* call = CurrentCall(*member);
    if (call == nullptr) call = LastCall(*member);
    return call == nullptr ? 0 : member->read_ns - call->created_ns;
  };
  return **std::max_element(
      members.begin(), members.end(),
      [&](const Member* a, const Member* b) { return age(a) < age(b); });
}

std::string Plural(std::string text) {
  for (const auto& [one, many] :
       {std::pair{"is at", "are at"}, std::pair{"has ", "have "}})
    if (absl::StartsWith(text, one))
      return absl::StrCat(many, text.substr(std::string_view(one).size()));
  return text;
}

std::string Sentence(const Members& members) {
  const std::string place = PlaceText(Longest(members));
  return absl::StrCat(RanksText(RanksOf(members)), " ",
                      members.size() == 1 ? place : Plural(place));
}

void FindFailure(const JobCommunicator& communicator,
                 std::vector<Finding>* findings) {
  Members failed;
  for (const Member& member : communicator.members)
    if (!member.cause.empty()) failed.push_back(&member);
  if (failed.empty()) return;
  // The rank where it began tells it best: the others quote.
  const auto origin =
      std::find_if(failed.begin(), failed.end(), [](const Member* member) {
        return !absl::StrContains(member->cause, "(origin: rank ");
      });
  const Member& teller = **(origin == failed.end() ? failed.begin() : origin);
  findings->push_back({"failed", RanksOf(failed),
                       absl::StrCat("failed on ", RanksText(RanksOf(failed)),
                                    ": ", teller.cause)});
}

void FindStopped(const JobCommunicator& communicator,
                 std::vector<Finding>* findings) {
  for (const Member& member : communicator.members) {
    if (member.process != "stopped" && member.process != "traced") continue;
    findings->push_back({"stopped",
                         {member.rank},
                         absl::StrCat("rank ", member.rank, " (pid ",
                                      member.pid, ") is ", member.process)});
  }
}

void FindMissing(const JobCommunicator& communicator,
                 std::vector<Finding>* findings) {
  std::vector<int> missing;
  for (const int rank : communicator.ranks) {
    const bool there =
        std::any_of(communicator.members.begin(), communicator.members.end(),
                    [rank](const Member& m) { return m.rank == rank; });
    if (!there) missing.push_back(rank);
  }
  if (missing.empty() || communicator.members.empty()) return;
  const char* where =
      communicator.members.front().process.empty()
          ? ": no dump; dead, or it never came back to the library"
          : " not seen here: on another host, dead, or not to be looked at";
  std::string text = absl::StrCat(RanksText(missing), where);
  findings->push_back({"missing", std::move(missing), std::move(text)});
}

// What ranks must have alike: "all_reduce of 1024 float32 (max)".
std::string Signature(const JobCall& call) {
  std::string text = call.kind;
  if (call.count.has_value())
    absl::StrAppend(&text, " of ", *call.count, " ", call.type);
  if (!call.op.empty()) absl::StrAppend(&text, " (", call.op, ")");
  if (call.peer >= 0) absl::StrAppend(&text, ", root ", call.peer);
  return text;
}

// The first call that not all who make it make alike.
void FindMismatch(const JobCommunicator& communicator,
                  std::vector<Finding>* findings) {
  const uint32_t origin = communicator.members.front().completed;
  std::map<int64_t, std::map<std::string, std::vector<int>>> calls;
  for (const Member& member : communicator.members) {
    for (const JobCall& call : member.calls)
      if (!call.message)
        calls[Ahead(call.sequence, origin)][Signature(call)].push_back(
            member.rank);
  }
  for (const auto& [ahead, made] : calls) {
    if (made.size() < 2) continue;
    // Those who differ from most come first.
    std::vector<std::pair<std::string, std::vector<int>>> sides(made.begin(),
                                                                made.end());
    std::stable_sort(sides.begin(), sides.end(), [](auto& a, auto& b) {
      return a.second.size() < b.second.size();
    });
    std::vector<std::string> texts;
    for (const auto& [signature, ranks] : sides)
      texts.push_back(absl::StrCat(RanksText(ranks),
                                   ranks.size() == 1 ? " makes " : " make ",
                                   signature));
    findings->push_back(
        {"mismatch", sides.front().second,
         absl::StrCat("call ", origin + static_cast<uint32_t>(ahead),
                      " differs: ", absl::StrJoin(texts, "; "))});
    return;
  }
}

void FindPlaces(const JobCommunicator& communicator,
                std::vector<Finding>* findings) {
  const uint32_t origin = communicator.members.front().completed;
  std::map<int64_t, Members> places;
  for (const Member& member : communicator.members)
    places[Position(member, origin)].push_back(&member);
  const Members& last = places.begin()->second;
  const bool within = places.begin()->first % 2 != 0;
  if (places.size() == 1) {
    findings->push_back({within ? "together" : "idle", RanksOf(last),
                         absl::StrCat("all: ", Sentence(last))});
    return;
  }
  std::vector<std::string> texts = {Sentence(last)};
  const Members& first = places.rbegin()->second;
  if (places.size() == 2) {
    const std::string place = PlaceText(Longest(first));
    texts.push_back(first.size() == 1
                        ? Sentence(first)
                        : absl::StrCat("all others ", Plural(place)));
  } else {
    for (auto place = std::next(places.begin()); place != places.end(); ++place)
      texts.push_back(Sentence(place->second));
  }
  findings->push_back({"behind", RanksOf(last), absl::StrJoin(texts, "; ")});
}

void FindMessages(const JobCommunicator& communicator,
                  std::vector<Finding>* findings) {
  for (const Member& member : communicator.members) {
    const JobCall* call = CurrentMessage(member);
    if (call == nullptr) continue;
    findings->push_back(
        {"message",
         {member.rank},
         absl::StrCat("rank ", member.rank, " is in ", CallText(*call), " for ",
                      AgeText(AgeNs(*call, member)))});
  }
}

}  // namespace

std::string BytesText(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB",
                                                 "TiB"};
  size_t unit = 0;
  double amount = static_cast<double>(bytes);
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  return absl::StrFormat("%.4g %s", amount, kUnits[unit]);
}

std::string AgeText(int64_t ns) {
  const double seconds = static_cast<double>(std::max<int64_t>(ns, 0)) * 1e-9;
  if (seconds < 1) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 10) return absl::StrFormat("%.1f s", seconds);
  if (seconds < 600) return absl::StrFormat("%.0f s", seconds);
  return absl::StrFormat("%.0f min", seconds / 60);
}

std::string RanksText(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks.front());
  if (ranks.size() <= kMostNamed)
    return absl::StrCat("ranks ", absl::StrJoin(ranks, ", "));
  const auto end = ranks.begin() + kMostNamed;
  return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), end, ", "),
                      ", ... (", ranks.size(), " in all)");
}

int64_t AgeNs(const JobCall& call, const Member& member) {
  const int64_t end_ns =
      call.finished_ns > 0 ? call.finished_ns : member.read_ns;
  return std::max<int64_t>(end_ns - call.created_ns, 0);
}

std::string CallText(const JobCall& call) {
  std::string text = call.kind;
  if (call.count.has_value())
    absl::StrAppend(&text, " of ", BytesText(call.bytes));
  if (!call.message) return text;
  const bool sends = call.kind == "send";
  if (call.peer < 0) {
    absl::StrAppend(&text, " from any rank");
  } else {
    absl::StrAppend(&text, sends ? " to rank " : " from rank ", call.peer);
  }
  if (call.tag >= 0) absl::StrAppend(&text, ", tag ", call.tag, ",");
  return text;
}

std::string PlaceText(const Member& member) {
  if (Ahead(member.scheduled, member.completed) > 0) {
    const JobCall* call = CurrentCall(member);
    const std::string place = absl::StrCat("is at call ", member.completed + 1);
    if (call == nullptr) return place;
    return absl::StrCat(place, " ", CallText(*call), " for ",
                        AgeText(AgeNs(*call, member)));
  }
  if (member.completed == 0) return "has made no call yet";
  const JobCall* call = LastCall(member);
  const std::string place =
      absl::StrCat("has made no call since ", member.completed);
  if (call == nullptr) return place;
  return absl::StrCat(place, " ", CallText(*call), ", done ",
                      AgeText(member.read_ns - call->finished_ns), " ago");
}

std::vector<Finding> Diagnose(const JobCommunicator& communicator) {
  std::vector<Finding> findings;
  if (communicator.members.empty()) return findings;
  FindFailure(communicator, &findings);
  FindStopped(communicator, &findings);
  FindMissing(communicator, &findings);
  FindMismatch(communicator, &findings);
  FindPlaces(communicator, &findings);
  FindMessages(communicator, &findings);
  return findings;
}

}  // namespace trnccl::cli
