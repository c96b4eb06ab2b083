// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What the operating system refused, as a Status: the right code, the system's
// own words and, where a limit is the cause, which one to raise.
//
// Thread rule: a pure function of its arguments.
//
//   if (fd < 0) return SystemError(errno, "memfd_create");
#pragma once

#include <string>

#include "absl/status/status.h"

namespace trnccl {

absl::Status SystemError(int error, const std::string& what);

}  // namespace trnccl
