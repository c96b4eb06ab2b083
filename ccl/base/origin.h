// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The rank that an error began at, beside its text: whoever passes the error on
// says so too, however many ranks it goes through.
//
// Thread rule: pure functions.
//
//   return WithOrigin(absl::UnavailableError("rank 3 (pid 77) died"), 3);
//   const int origin = OriginOf(status).value_or(my_rank);
#pragma once

#include <optional>

#include "absl/status/status.h"

namespace trnccl {

absl::Status WithOrigin(absl::Status status, int rank);

std::optional<int> OriginOf(const absl::Status& status);

}  // namespace trnccl
