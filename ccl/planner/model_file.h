// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The constants of the cost model: those measured on one machine, or those of
// a tuning file (TRNCCL_TUNING_FILE, as `trnccl tune` writes it) of lines
// "name = number", "#" for comments. All ranks must have the same, since each
// chooses by itself.
//
// Thread rule: pure functions; ReadModelFile() reads a file.
//
//   ASSIGN_OR_RETURN(LinkModel model, ReadModelFile(settings.tuning_file));
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "algorithms/cost.h"

namespace trnccl {

// Inside a node: rounded from what two processes on two cores of one cache
// showed, exchanging 8 B (0.17 us) to 128 KiB (14 us) over shared memory, and
// from //ccl/kernels:fold_benchmark. Between nodes: the order of TCP.
LinkModel DefaultModel();

// Values that the text doesn't name stay the default's. InvalidArgument names
// the line that is wrong.
absl::StatusOr<LinkModel> ParseModel(std::string_view text);
absl::StatusOr<LinkModel> ReadModelFile(const std::string& path);
// Of the file, or the default where its path is empty.
absl::StatusOr<LinkModel> ChosenModel(const std::string& path);

// What ParseModel() takes back.
std::string ModelText(const LinkModel& model);

}  // namespace trnccl
