// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/recorder/process_logs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "ccl/base/status_macros.h"
#include "ccl/recorder/call_ring.h"

namespace trnccl {
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

bool IsOf(const LogKey& key, const RingPlace& place, const Memory& memory) {
  LogKey found;
  const auto read = [&](size_t offset, auto* field) {
    return memory.Read(place.address + offset,
                       std::as_writable_bytes(std::span(field, 1)));
  };
  return read(offsetof(CallRingHeader, cookie), &found.cookie).ok() &&
         read(offsetof(CallRingHeader, rank), &found.rank).ok() &&
         found.cookie == key.cookie && found.rank == key.rank;
}

std::string DescribeLogged(const LoggedCall& call) {
  const bool sends = call.kind == CallKind::kSend;
  std::string text = absl::StrCat(AnalyserName(call.kind), " #", call.sequence);
  if (IsMessage(call.kind)) {
    absl::StrAppend(&text, sends ? " to " : " from ",
                    call.peer < 0 ? "any rank" : "rank ");
    if (call.peer >= 0) absl::StrAppend(&text, call.peer);
  }
  if (call.kind == KindOf(Collective::kBarrier)) return text;
  return absl::StrCat(text, " (", std::string(Name(call.type)), ", count ",
                      call.count, ")");
}

std::string Seconds(int64_t ns) { return absl::StrFormat("%.1f s", ns * 1e-9); }

}  // namespace

ProcessState StateOf(pid_t pid) {
  ProcessState process;
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

absl::StatusOr<std::vector<absl::StatusOr<CallLog>>> ReadProcessLogs(
    pid_t pid, std::optional<LogKey> key) {
  ASSIGN_OR_RETURN(const std::vector<RingPlace> places, PlacesIn(pid));
  const int64_t own_pid = StateOf(pid).own_pid;
  std::vector<absl::StatusOr<CallLog>> logs;
  const Memory memory(pid);
  for (const RingPlace& place : places) {
    if (key.has_value() && !IsOf(*key, place, memory)) continue;
    absl::StatusOr<CallLog> log =
        ReadCallRing(place, [&memory](uint64_t address, auto into) {
          return memory.Read(address, into);
        });
    if (log.ok() && log->owner.pid != own_pid) continue;
    logs.push_back(std::move(log));
  }
  return logs;
}

std::string DescribeProgress(const CallLog& log) {
  const auto open = std::find_if(
      log.calls.begin(), log.calls.end(),
      [](const LoggedCall& call) { return call.state == CallState::kStarted; });
  if (open != log.calls.end()) {
    return absl::StrCat("in ", DescribeLogged(*open), " for ",
                        Seconds(log.read_ns - open->started_ns));
  }
  if (log.calls.empty()) return "has made no call yet";
  const LoggedCall& last = log.calls.back();
  return absl::StrCat("its last call: ", DescribeLogged(last), ", over ",
                      Seconds(log.read_ns - last.finished_ns), " ago");
}

}  // namespace trnccl
