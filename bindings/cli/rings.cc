// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/rings.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ccl/base/status_macros.h"
#include "ccl/recorder/call_log.h"
#include "ccl/recorder/call_ring.h"

namespace trnccl::cli {
namespace {

std::string ProcPath(pid_t pid, const char* file) {
  return absl::StrCat("/proc/", pid, "/", file);
}

absl::Status NotRead(int error) {
  std::string why = std::strerror(error);
  if (error == EACCES || error == EPERM)
    absl::StrAppend(&why,
                    "; looking into another process takes its user's rights, "
                    "and root's where kernel.yama.ptrace_scope isn't 0");
  return absl::UnavailableError(why);
}

// A process's memory, for as long as that's open.
class Memory {
 public:
  explicit Memory(pid_t pid)
      : fd_(open(ProcPath(pid, "mem").c_str(), O_RDONLY | O_CLOEXEC)),
        error_(errno) {}
  ~Memory() {
    if (fd_ >= 0) close(fd_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  absl::Status Read(uint64_t address, std::span<std::byte> into) const {
    if (fd_ < 0) return NotRead(error_);
    while (!into.empty()) {
      const ssize_t got =
          pread(fd_, into.data(), into.size(), static_cast<off_t>(address));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return NotRead(got < 0 ? errno : ESRCH);
      address += static_cast<uint64_t>(got);
      into = into.subspan(static_cast<size_t>(got));
    }
    return absl::OkStatus();
  }

 private:
  const int fd_;
  const int error_;
};

// Of the lines of /proc/PID/maps: "7f00-7f80 rw-s 00000000 00:01 99 NAME".
absl::StatusOr<std::vector<RingPlace>> PlacesIn(pid_t pid) {
  const std::string mark = absl::StrCat("/memfd:", kRingName, " ");
  errno = 0;
  std::ifstream maps(ProcPath(pid, "maps"));
  if (!maps) return NotRead(errno);
  std::vector<RingPlace> places;
  for (std::string line; std::getline(maps, line);) {
    if (!absl::StrContains(line, mark)) continue;
    const std::vector<std::string> ends =
        absl::StrSplit(line.substr(0, line.find(' ')), '-');
    uint64_t begin = 0, end = 0;
    if (ends.size() == 2 && absl::SimpleHexAtoi(ends[0], &begin) &&
        absl::SimpleHexAtoi(ends[1], &end) && begin < end)
      places.push_back({begin, end - begin});
  }
  return places;
}

struct Process {
  std::string state = "gone";
  int64_t own_pid = 0;  // as it knows itself
};

Process ProcessOf(pid_t pid) {
  Process process;
  std::ifstream status(ProcPath(pid, "status"));
  for (std::string line; std::getline(status, line);) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t()"), absl::SkipEmpty());
    if (words.size() < 2) continue;
    // "State:  T (stopped)"; t is "tracing stop".
    if (words[0] == "State:")
      process.state = words[1] == "t" ? "traced" : words.back();
    // The last is of its innermost namespace.
    if (words[0] == "NSpid:" &&
        !absl::SimpleAtoi(words.back(), &process.own_pid))
      process.own_pid = 0;
  }
  return process;
}

JobCall CallOf(const LoggedCall& logged, int ranks) {
  const bool message = IsMessage(logged.kind);
  const CallSizes sizes = SizesOf(logged, ranks);
  JobCall call{.sequence = logged.sequence,
               .message = message,
               .kind = AnalyserName(logged.kind),
               .type = std::string(Name(logged.type)),
               .count = std::max(sizes.input, sizes.output),
               .peer = logged.peer,
               .tag = message ? logged.tag : -1,
               .algorithm = logged.algorithm,
               .state = static_cast<JobCall::State>(logged.state),
               .created_ns = logged.created_ns,
               .started_ns = logged.started_ns,
               .finished_ns = logged.finished_ns};
  call.bytes = *call.count * ElementBytes(logged.type);
  if (absl::StrContains(call.kind, "reduce"))
    call.op = std::string(Name(logged.op));
  if (absl::StrContains(call.kind, "_v") || call.kind == "barrier")
    call.count = std::nullopt;
  return call;
}

void AddLog(const CallLog& log, Member member, Job* job) {
  const int ranks = log.owner.membership.ranks;
  member.rank = log.owner.membership.rank;
  member.host = log.owner.hostname;
  member.cause = log.cause;
  member.read_ns = log.read_ns;
  member.scheduled = log.last_scheduled;
  member.completed = log.last_completed;
  for (const LoggedCall& logged : log.calls)
    member.calls.push_back(CallOf(logged, ranks));
  JobCommunicator like{
      .id = absl::StrCat(absl::Hex(log.owner.cookie, absl::kZeroPad8)),
      .name = log.owner.name,
      .ranks = std::vector<int>(static_cast<size_t>(ranks))};
  std::iota(like.ranks.begin(), like.ranks.end(), 0);
  AddMember(like, std::move(member), job);
}

absl::Status AddRing(pid_t pid, const RingPlace& place, Job* job) {
  const Memory memory(pid);
  ASSIGN_OR_RETURN(const CallLog log,
                   ReadCallRing(place, [&](uint64_t address, auto into) {
                     return memory.Read(address, into);
                   }));
  const Process process = ProcessOf(pid);
  // A child that was forked has its parent's memory, but isn't the rank.
  if (log.owner.pid != process.own_pid) return absl::OkStatus();
  AddLog(log, {.pid = pid, .process = process.state}, job);
  return absl::OkStatus();
}

std::vector<pid_t> AllProcesses() {
  std::vector<pid_t> pids;
  std::error_code ignored;  // Of those that end meanwhile.
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc", ignored)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry.path().filename().string(), &pid))
      pids.push_back(pid);
  }
  return pids;
}

}  // namespace

Job ReadRings(std::span<const pid_t> pids) {
  Job job;
  const std::vector<pid_t> chosen =
      pids.empty() ? AllProcesses() : std::vector(pids.begin(), pids.end());
  for (const pid_t pid : chosen) {
    const auto not_read = [&](const absl::Status& why) {
      job.unread.push_back(
          {absl::StrCat("pid ", pid), std::string(why.message())});
    };
    const absl::StatusOr<std::vector<RingPlace>> places = PlacesIn(pid);
    if (!places.ok()) {
      // Others' processes are nobody's business, unless asked for.
      if (!pids.empty()) not_read(places.status());
      continue;
    }
    for (const RingPlace& place : *places) {
      const absl::Status status = AddRing(pid, place, &job);
      if (!status.ok()) not_read(status);
    }
  }
  return job;
}

}  // namespace trnccl::cli
