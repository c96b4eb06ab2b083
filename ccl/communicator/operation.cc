// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/communicator/operation.h"

#include <array>
#include <span>

namespace trnccl {

void Operation::OwnCounts() {
  const std::array<std::span<const int64_t>*, 4> arrays = {
      &call.input_counts.counts, &call.input_counts.offsets,
      &call.output_counts.counts, &call.output_counts.offsets};
  size_t total = 0;
  for (const auto* array : arrays) total += array->size();
  counts.reserve(total);
  for (auto* array : arrays) {
    const size_t first = counts.size();
    counts.insert(counts.end(), array->begin(), array->end());
    *array = {counts.data() + first, array->size()};
  }
}

}  // namespace trnccl
