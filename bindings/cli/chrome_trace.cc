// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/chrome_trace.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/diagnosis.h"
#include "ccl/base/json.h"

namespace trnccl::cli {
namespace {

// Where an event is drawn.
struct Track {
  size_t process = 0;
  size_t thread = 0;
};

std::string NameEvent(const char* what, const Track& track,
                      const std::string& name) {
  return absl::StrCat("{\"ph\": \"M\", \"name\": \"", what,
                      "\", \"pid\": ", track.process,
                      ", \"tid\": ", track.thread,
                      ", \"args\": {\"name\": ", JsonText(name), "}}");
}

std::string CallEvent(const JobCall& call, const Member& member,
                      const Track& track, int64_t origin_ns) {
  const auto microseconds = [](int64_t ns) {
    return absl::StrFormat("%.3f", static_cast<double>(ns) * 1e-3);
  };
  const char* end = call.state == JobCall::kCompleted ? "completed"
                    : call.state == JobCall::kFailed  ? "failed"
                                                      : "unfinished";
  return absl::StrCat("{\"ph\": \"X\", \"name\": ", JsonText(call.kind),
                      ", \"pid\": ", track.process, ", \"tid\": ", track.thread,
                      ", \"ts\": ", microseconds(call.created_ns - origin_ns),
                      ", \"dur\": ", microseconds(AgeNs(call, member)),
                      ", \"args\": {\"call\": ", call.sequence,
                      ", \"what\": ", JsonText(CallText(call)),
                      ", \"type\": ", JsonText(call.type),
                      ", \"algorithm\": ", JsonText(call.algorithm),
                      ", \"end\": \"", end, "\"}}");
}

int64_t EarliestNs(const Job& job) {
  int64_t earliest = INT64_MAX;
  for (const JobCommunicator& communicator : job.communicators)
    for (const Member& member : communicator.members)
      for (const JobCall& call : member.calls)
        earliest = std::min(earliest, call.created_ns);
  return earliest;
}

}  // namespace

std::string ChromeTrace(const Job& job) {
  std::vector<std::string> events;
  // A process has several dumps, one a communicator; PyTorch's name none.
  std::map<std::string, size_t> processes;
  const int64_t origin_ns = EarliestNs(job);
  size_t thread = 0;
  for (const JobCommunicator& communicator : job.communicators) {
    // Messages may overlap collectives: they have a thread of their own.
    thread += 2;
    for (const Member& member : communicator.members) {
      const std::string key = member.pid == 0
                                  ? member.file
                                  : absl::StrCat(member.host, ":", member.pid);
      const auto [process, added] = processes.emplace(key, processes.size());
      const Track track{process->second, thread};
      const Track messages{process->second, thread + 1};
      if (added) {
        events.push_back(
            NameEvent("process_name", track,
                      absl::StrCat("rank ", member.rank, " (", key, ")")));
      }
      events.push_back(NameEvent("thread_name", track, communicator.name));
      events.push_back(
          NameEvent("thread_name", messages, communicator.name + ", messages"));
      for (const JobCall& call : member.calls)
        events.push_back(CallEvent(call, member,
                                   call.message ? messages : track, origin_ns));
    }
  }
  return absl::StrCat("{\"traceEvents\": [\n", absl::StrJoin(events, ",\n"),
                      "\n]}\n");
}

}  // namespace trnccl::cli
