// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/system_error.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace trnccl {

absl::Status SystemError(int error, const std::string& what) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(error));
  switch (error) {
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(
          absl::StrCat(text, "; raise the limit of open files (ulimit -n)"));
    case ENOMEM:
    case ENOSPC:
    case EAGAIN:
      return absl::ResourceExhaustedError(absl::StrCat(
          text, "; free memory or raise its limits (ulimit -v, the cgroup)"));
    case EFBIG:
      return absl::ResourceExhaustedError(
          absl::StrCat(text, "; raise the limit of file sizes (ulimit -f)"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(text, "; ranks of a node must run as one user"));
    default:
      return absl::UnavailableError(text);
  }
}

}  // namespace trnccl
