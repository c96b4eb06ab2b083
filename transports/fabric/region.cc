// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/region.h"

#include "absl/memory/memory.h"
#include "ccl/base/status_macros.h"

namespace trnccl::fabric {

absl::StatusOr<std::unique_ptr<FabricRegion>> FabricRegion::Make(
    std::shared_ptr<Port> port, std::shared_ptr<RegistrationCache> cache,
    const MemoryRange& memory) {
  RegistrationCache::Entry* entry = nullptr;
  if (cache != nullptr) {
    ASSIGN_OR_RETURN(entry, cache->Take(memory));
  }
  auto region = absl::WrapUnique(
      new FabricRegion(std::move(port), std::move(cache), memory));
  region->entry_ = entry;
  return region;
}

FabricRegion::~FabricRegion() {
  if (entry_ == nullptr) return;
  MutexLock lock(port_->mutex());
  cache_->Drop(entry_);
}

}  // namespace trnccl::fabric
