// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Sets of processors as the kernel numbers them, and its list form "0-3,8".
//
// Thread rule: plain values and pure functions.
//
//   ASSIGN_OR_RETURN(CpuSet cpus, ParseCpuSet("0-3,8"));
//   CpuSetText(cpus);  // "0-3,8"
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace trnccl {

// Ascending, each once.
using CpuSet = std::vector<int>;

// Far above any machine: what bounds a text from a peer or a file.
inline constexpr int kMaxCpus = 1 << 14;

std::string CpuSetText(const CpuSet& cpus);

// Strict: ascending, no blanks, below kMaxCpus; "" is the empty set.
absl::StatusOr<CpuSet> ParseCpuSet(std::string_view text);

// Several sets that share no processor, separated by ";".
std::string CpuSetsText(const std::vector<CpuSet>& sets);
absl::StatusOr<std::vector<CpuSet>> ParseCpuSets(std::string_view text);

}  // namespace trnccl
