// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/base/origin.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace trnccl {
namespace {

constexpr absl::string_view kPayload = "trnccl.origin";

}  // namespace

absl::Status WithOrigin(absl::Status status, int rank) {
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(rank)));
  return status;
}

std::optional<int> OriginOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  int rank = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &rank)) {
    return std::nullopt;
  }
  return rank;
}

}  // namespace trnccl
