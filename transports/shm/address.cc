// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/address.h"

#include <sys/stat.h>

#include <cerrno>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "transports/system_error.h"

namespace trnccl::shm {

std::string Address::Text() const {
  return absl::StrCat("shm ", pid, " ", fd, " ", inode, " ", token, " ",
                      pid_namespace, " ", doorbell);
}

absl::StatusOr<Address> Address::Parse(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  Address address;
  const bool good = words.size() == 7 && words[0] == "shm" &&
                    absl::SimpleAtoi(words[1], &address.pid) &&
                    absl::SimpleAtoi(words[2], &address.fd) &&
                    absl::SimpleAtoi(words[3], &address.inode) &&
                    absl::SimpleAtoi(words[4], &address.token) &&
                    absl::SimpleAtoi(words[5], &address.pid_namespace);
  if (!good || address.pid <= 0 || address.fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" isn't an address of shared memory"));
  }
  address.doorbell = words[6];
  return address;
}

absl::StatusOr<uint64_t> PidNamespace() {
  struct stat status = {};
  if (stat("/proc/self/ns/pid", &status) != 0) {
    return SystemError(errno, "looking at /proc/self/ns/pid (is /proc there?)");
  }
  return status.st_ino;
}

}  // namespace trnccl::shm
