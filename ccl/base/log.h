// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The log: one line a message, on stderr or in a file, each with the time, the
// level and whose it is. A message below the level costs one load and a branch;
// its text isn't even composed. Not for the path of a call's steps.
//
// Thread rule: thread-safe. A line is one write(2), so lines of several threads
// and processes never mix.
//
//   const std::string context = LogContext(membership, "world");
//   TRNCCL_LOG(LogLevel::kWarn, context, "peer ", peer, " is late");
//
// writes: 2026-11-29T17:00:00.123456Z WARN [rank 0/2 comm world host:99] ...
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ccl/base/membership.h"

namespace trnccl {

enum class LogLevel : uint8_t { kError, kWarn, kInfo, kDebug, kTrace };

// Sets the level and the place for the whole process. `file` may hold %h (host)
// and %p (process id), is appended to, and empty means stderr. An error leaves
// both as they were.
absl::Status ConfigureLog(LogLevel level, const std::string& file);

// The bracket that says whose a line is; composed once by its owner.
std::string LogContext(Membership membership, const std::string& name);

namespace internal {

extern std::atomic<LogLevel> log_level;

// Control characters in `message` become spaces: a message is one line.
void WriteLogLine(LogLevel level, const std::string& context,
                  const std::string& message);

}  // namespace internal

inline bool LogEnabled(LogLevel level) {
  return level <= internal::log_level.load(std::memory_order_relaxed);
}

}  // namespace trnccl

#define TRNCCL_LOG(level, context, ...)                            \
  do {                                                             \
    if (::trnccl::LogEnabled(level)) [[unlikely]]                  \
      ::trnccl::internal::WriteLogLine(level, context,             \
                                       absl::StrCat(__VA_ARGS__)); \
  } while (false)
