// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/report.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/diagnosis.h"
#include "ccl/base/json.h"

namespace trnccl::cli {
namespace {

std::string WhereText(const Member& member) {
  return member.file.empty() ? member.process : member.file;
}

std::string MemberLine(const Member& member) {
  std::string place = PlaceText(member);
  const JobCall* call = CurrentCall(member);
  if (call != nullptr && !call->algorithm.empty())
    absl::StrAppend(&place, " (", call->algorithm, ")");
  return absl::StrFormat("%6d  %8d  %-16s  %-10s  %s\n", member.rank,
                         member.pid, member.host, WhereText(member), place);
}

std::string CommunicatorText(const JobCommunicator& communicator) {
  std::string text = absl::StrCat(
      "communicator ", communicator.name, " ", communicator.id,
      communicator.id.empty() ? "" : " ", "of ", communicator.ranks.size(),
      " ranks, ", communicator.members.size(), " seen\n");
  for (const Finding& finding : Diagnose(communicator))
    absl::StrAppend(&text, "  ", finding.text, "\n");
  const bool dumps = !communicator.members.empty() &&
                     !communicator.members.front().file.empty();
  absl::StrAppend(&text,
                  absl::StrFormat("%6s  %8s  %-16s  %-10s  %s\n", "rank", "pid",
                                  "host", dumps ? "dump" : "process", "call"));
  for (const Member& member : communicator.members)
    absl::StrAppend(&text, MemberLine(member));
  return text;
}

std::string MillisecondsJson(int64_t ns) {
  return absl::StrFormat("%.3f", static_cast<double>(ns) * 1e-6);
}

std::string CallJson(const JobCall* call, const Member& member) {
  if (call == nullptr) return "null";
  constexpr const char* kStates[] = {"scheduled", "started", "completed",
                                     "failed"};
  std::string text = absl::StrCat(
      "{\"call\": ", call->sequence, ", \"kind\": ", JsonText(call->kind),
      ", \"type\": ", JsonText(call->type), ", \"count\": ",
      call->count.has_value() ? absl::StrCat(*call->count) : "null",
      ", \"bytes\": ",
      call->count.has_value() ? absl::StrCat(call->bytes) : "null",
      ", \"operator\": ", JsonText(call->op), ", \"peer\": ", call->peer,
      ", \"tag\": ", call->tag, ", \"algorithm\": ", JsonText(call->algorithm),
      ", \"state\": \"", kStates[call->state],
      "\", \"took_ms\": ", MillisecondsJson(AgeNs(*call, member)));
  if (call->state == JobCall::kCompleted)
    absl::StrAppend(&text, ", \"done_ms_ago\": ",
                    MillisecondsJson(member.read_ns - call->finished_ns));
  return text + "}";
}

std::string MemberJson(const Member& member) {
  return absl::StrCat(
      "{\"rank\": ", member.rank, ", \"host\": ", JsonText(member.host),
      ", \"pid\": ", member.pid, ", \"process\": ", JsonText(member.process),
      ", \"file\": ", JsonText(member.file),
      ", \"cause\": ", JsonText(member.cause),
      ", \"scheduled\": ", member.scheduled,
      ", \"completed\": ", member.completed,
      ", \"current\": ", CallJson(CurrentCall(member), member),
      ", \"last\": ", CallJson(LastCall(member), member),
      ", \"message\": ", CallJson(CurrentMessage(member), member), "}");
}

std::string FindingJson(const Finding& finding) {
  return absl::StrCat("{\"kind\": ", JsonText(finding.kind), ", \"ranks\": [",
                      absl::StrJoin(finding.ranks, ", "),
                      "], \"text\": ", JsonText(finding.text), "}");
}

std::string CommunicatorJson(const JobCommunicator& communicator) {
  std::vector<std::string> findings;
  for (const Finding& finding : Diagnose(communicator))
    findings.push_back(FindingJson(finding));
  std::vector<std::string> members;
  for (const Member& member : communicator.members)
    members.push_back(MemberJson(member));
  return absl::StrCat(
      "{\"id\": ", JsonText(communicator.id),
      ", \"name\": ", JsonText(communicator.name), ", \"ranks\": [",
      absl::StrJoin(communicator.ranks, ", "), "],\n \"findings\": [\n  ",
      absl::StrJoin(findings, ",\n  "), "],\n \"members\": [\n  ",
      absl::StrJoin(members, ",\n  "), "]}");
}

}  // namespace

std::string ReportText(const Job& job) {
  std::vector<std::string> texts;
  for (const JobCommunicator& communicator : job.communicators)
    texts.push_back(CommunicatorText(communicator));
  std::string text = absl::StrJoin(texts, "\n");
  if (texts.empty()) text = "no communicators found\n";
  for (const Unread& unread : job.unread)
    absl::StrAppend(&text, "not read: ", unread.what, ": ", unread.why, "\n");
  return text;
}

std::string ReportJson(const Job& job) {
  std::vector<std::string> communicators;
  for (const JobCommunicator& communicator : job.communicators)
    communicators.push_back(CommunicatorJson(communicator));
  std::vector<std::string> unread;
  for (const Unread& one : job.unread)
    unread.push_back(absl::StrCat("{\"what\": ", JsonText(one.what),
                                  ", \"why\": ", JsonText(one.why), "}"));
  return absl::StrCat("{\"communicators\": [\n",
                      absl::StrJoin(communicators, ",\n"), "],\n\"unread\": [",
                      absl::StrJoin(unread, ", "), "]}\n");
}

}  // namespace trnccl::cli
