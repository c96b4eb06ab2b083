// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/mapping_table.h"

#include <utility>

#include "ccl/base/status_macros.h"

namespace trnccl::shm {

absl::StatusOr<SharedMapping> MappingTable::Get(
    const SharedReference& reference) {
  for (const Entry& entry : entries_) {
    if (entry.reference == reference) return entry.mapping;
  }
  ASSIGN_OR_RETURN(SharedMapping mapping,
                   MapShared(reference, SharedAccess::kReadWrite));
  if (entries_.size() < capacity_) {
    entries_.push_back({reference, mapping});
  } else {
    entries_[oldest_++ % capacity_] = {reference, mapping};
  }
  return mapping;
}

}  // namespace trnccl::shm
