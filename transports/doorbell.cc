// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/doorbell.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "transports/system_error.h"

namespace trnccl {
absl::StatusOr<std::unique_ptr<Doorbell>> Doorbell::Create() {
  // Not an eventfd: that can't be opened through /proc.
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
    return SystemError(errno, "making a doorbell");
  return absl::WrapUnique(new Doorbell(fds[0], fds[1]));
}

Doorbell::Doorbell(int read_fd, int write_fd)
    : read_fd_(read_fd), write_fd_(write_fd) {}

Doorbell::~Doorbell() {
  close(read_fd_);
  close(write_fd_);
}

std::string Doorbell::address() const {
  struct stat status = {};
  fstat(write_fd_, &status);
  return absl::StrCat(getpid(), ":", write_fd_, ":", status.st_ino);
}

void Doorbell::Drain() {
  std::array<char, 256> rings;
  while (read(read_fd_, rings.data(), rings.size()) > 0) {
  }
}

absl::StatusOr<std::unique_ptr<Ringer>> Ringer::Open(
    const std::string& address) {
  const std::vector<std::string> words = absl::StrSplit(address, ':');
  int32_t pid = 0;
  int32_t pipe_fd = -1;
  uint64_t inode = 0;
  if (words.size() != 3 || !absl::SimpleAtoi(words[0], &pid) ||
      !absl::SimpleAtoi(words[1], &pipe_fd) ||
      !absl::SimpleAtoi(words[2], &inode) || pid <= 0 || pipe_fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\" isn't the address of a doorbell"));
  }
  const std::string path = absl::StrCat("/proc/", pid, "/fd/", pipe_fd);
  // For reading as well, so that ringing at a dead process raises no SIGPIPE.
  const int fd = open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    return SystemError(errno, absl::StrCat("opening doorbell ", path));
  }
  struct stat status = {};
  if (fstat(fd, &status) != 0 || status.st_ino != inode ||
      !S_ISFIFO(status.st_mode)) {
    close(fd);
    return absl::NotFoundError(
        absl::StrCat("doorbell ", path, " is gone, another file is there"));
  }
  return absl::WrapUnique(new Ringer(fd));
}

Ringer::Ringer(int fd) : fd_(fd) {}

Ringer::~Ringer() { close(fd_); }

void Ringer::Ring() {
  // A full pipe is a ring that's still to be heard.
  const char ring = 0;
  while (write(fd_, &ring, 1) < 0 && errno == EINTR) {
  }
}

}  // namespace trnccl
