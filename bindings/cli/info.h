// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// `trnccl info`: which library this is, what is set, what this machine has, and
// what a job on it would use.
//
// Thread rule: reads the environment and this machine; thread-safe.
//
//   ASSIGN_OR_RETURN(const auto sections, GatherInfo(environ));
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trnccl::cli {

// Lines "name: value" under headings, in order; the names are those of the JSON
// fields.
struct InfoSection {
  struct Line {
    std::string name;
    std::string value;
    std::string source;  // of a setting; else empty
  };

  std::string heading;
  std::vector<Line> lines;
};

// InvalidArgument if the environment has a setting that's none.
absl::StatusOr<std::vector<InfoSection>> GatherInfo(
    const char* const* environment);

std::string InfoText(const std::vector<InfoSection>& sections);
std::string InfoJson(const std::vector<InfoSection>& sections);

// All of the subcommand.
absl::Status RunInfo(std::span<char* const> arguments);

}  // namespace trnccl::cli
