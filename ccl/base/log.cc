// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <array>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "ccl/base/mutex.h"

namespace trnccl {
namespace internal {

std::atomic<LogLevel> log_level{LogLevel::kWarn};

}  // namespace internal

namespace {

constexpr std::array<const char*, 5> kLevelNames = {"ERROR", "WARN", "INFO",
                                                    "DEBUG", "TRACE"};

// Where lines go. Once a file has been opened, its descriptor keeps its number
// for good and later files are put under it, so that a writer never meets a
// closed or recycled one.
std::atomic<int> log_fd{STDERR_FILENO};

struct File {
  Mutex mutex;
  std::string path ABSL_GUARDED_BY(mutex);
  int fd ABSL_GUARDED_BY(mutex) = -1;
};

File& TheFile() {
  static File& file = *new File;
  return file;
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

absl::Status OpenLogFile(const std::string& path) {
  File& file = TheFile();
  MutexLock lock(file.mutex);
  if (file.path != path) {
    const int fd =
        open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("TRNCCL_LOG_FILE: cannot open ", path, ": ",
                       strerror(errno), "; name a file that can be written"));
    }
    if (file.fd < 0) {
      file.fd = fd;
    } else {
      dup3(fd, file.fd, O_CLOEXEC);
      close(fd);
    }
    file.path = path;
  }
  log_fd.store(file.fd, std::memory_order_release);
  return absl::OkStatus();
}

std::string Timestamp() {
  timeval now;
  gettimeofday(&now, nullptr);
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%06dZ",
                         utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                         utc.tm_hour, utc.tm_min, utc.tm_sec,
                         static_cast<int>(now.tv_usec));
}

}  // namespace

absl::Status ConfigureLog(LogLevel level, const std::string& file) {
  if (file.empty()) {
    log_fd.store(STDERR_FILENO, std::memory_order_release);
  } else {
    const absl::Status opened = OpenLogFile(absl::StrReplaceAll(
        file, {{"%h", HostName()}, {"%p", absl::StrCat(getpid())}}));
    if (!opened.ok()) return opened;
  }
  internal::log_level.store(level, std::memory_order_relaxed);
  return absl::OkStatus();
}

std::string LogContext(Membership membership, const std::string& name) {
  return absl::StrCat("[rank ", membership.rank, "/", membership.ranks,
                      " comm ", name, " ", HostName(), ":", getpid(), "]");
}

namespace internal {

void WriteLogLine(LogLevel level, const std::string& context,
                  const std::string& message) {
  std::string line =
      absl::StrCat(Timestamp(), " ", kLevelNames[static_cast<size_t>(level)],
                   " ", context, " ", message);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  line.push_back('\n');
  // A log that can't be written (a full disk) must not fail the job.
  [[maybe_unused]] const ssize_t written =
      write(log_fd.load(std::memory_order_acquire), line.data(), line.size());
}

}  // namespace internal
}  // namespace trnccl
