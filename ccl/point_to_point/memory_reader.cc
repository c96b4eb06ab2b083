// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/memory_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ccl/base/origin.h"

namespace trnccl {

absl::StatusOr<std::optional<MemoryReader::Ended>> MemoryReader::Advance(
    size_t* left_bytes) {
  const Read& read = reads_.front();
  Transfer& receive = *read.receive;
  const size_t bytes =
      std::min(*left_bytes, receive.received_bytes - receive.moved_bytes);
  absl::StatusOr<bool> reached = false;
  if (read.memory != nullptr) {
    reached = read.memory->Read(read.source, receive.moved_bytes,
                                {receive.buffer + receive.moved_bytes, bytes});
  }
  if (!reached.ok()) {
    return WithOrigin(
        absl::Status(
            reached.status().code(),
            absl::StrCat("rank ", rank_, ": ", TransferText(receive), ": ",
                         absl::string_view(reached.status().message()))),
        receive.source);
  }
  *left_bytes -= bytes;
  receive.moved_bytes += bytes;
  if (*reached && receive.moved_bytes < receive.received_bytes)
    return std::nullopt;
  reads_.pop_front();
  return Ended{&receive, *reached};
}

void MemoryReader::FailAll(const absl::Status& status) {
  for (size_t i = 0; i < reads_.size(); ++i) Finish(reads_[i].receive, status);
  reads_.clear();
}

}  // namespace trnccl
