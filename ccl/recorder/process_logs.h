// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The recorders of a process of this machine, read out of its memory: also if
// it's stopped or hangs, since it isn't asked.
//
// Thread rule: reads /proc; thread-safe.
//
//   for (const auto& log : ReadProcessLogs(pid).value())
//     if (log.ok()) puts(DescribeProgress(*log).c_str());
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/recorder/call_log.h"

namespace trnccl {

struct ProcessState {
  std::string state = "gone";  // "running", "stopped", as the kernel says
  int64_t own_pid = 0;         // as the process knows itself
};
ProcessState StateOf(pid_t pid);

// Of one rank's communicator.
struct LogKey {
  uint32_t cookie = 0;
  int32_t rank = 0;
};

// One a communicator, or why it can't be read; of the key's alone, if there's
// one, which spares reading the others. Unavailable if the process can't be
// looked into at all. Those that it has of its parent, where it was forked,
// aren't its own.
absl::StatusOr<std::vector<absl::StatusOr<CallLog>>> ReadProcessLogs(
    pid_t pid, std::optional<LogKey> key = std::nullopt);

// What a rank is in, or was in last: "in recv #3 from rank 1 (float32, count 4)
// for 2.9 s"; "its last call: all_reduce #5 (float32, count 4), over 3.2 s
// ago".
std::string DescribeProgress(const CallLog& log);

}  // namespace trnccl
