// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The two macros that pass an error on. Abseil's release here has none.
//
//   RETURN_IF_ERROR(link.Open());
//   ASSIGN_OR_RETURN(Plan plan, tuner.Choose(call));
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TRNCCL_CONCAT_INNER(a, b) a##b
#define TRNCCL_CONCAT(a, b) TRNCCL_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)              \
  do {                                           \
    ::absl::Status trnccl_status = (expression); \
    if (!trnccl_status.ok()) [[unlikely]]        \
      return trnccl_status;                      \
  } while (false)

#define ASSIGN_OR_RETURN(target, expression)                               \
  TRNCCL_ASSIGN_OR_RETURN(TRNCCL_CONCAT(trnccl_result_, __LINE__), target, \
                          expression)

#define TRNCCL_ASSIGN_OR_RETURN(result, target, expression) \
  auto result = (expression);                               \
  if (!result.ok()) [[unlikely]]                            \
    return std::move(result).status();                      \
  target = *std::move(result)
