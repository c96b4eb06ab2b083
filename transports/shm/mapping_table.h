// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The memories of peers that one owner has mapped, so that meeting one again
// costs neither lock nor system call. Bounded: the oldest goes.
//
// Thread rule: thread-compatible.
//
//   ASSIGN_OR_RETURN(SharedMapping mapping, table.Get(reference));
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "transports/shared_memory.h"

namespace trnccl::shm {

class MappingTable {
 public:
  explicit MappingTable(size_t capacity) : capacity_(capacity) {}

  // For reading and writing. What was got stays mapped as long as it's held,
  // in the table or not.
  absl::StatusOr<SharedMapping> Get(const SharedReference& reference);

 private:
  struct Entry {
    SharedReference reference;
    SharedMapping mapping;
  };
  size_t capacity_;
  size_t oldest_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace trnccl::shm
