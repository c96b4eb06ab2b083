// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A caller's memory as the fabric transport knows it. It may outlive its
// transport, but is of use only to that one.
//
// Thread rule: thread-compatible; Revoke() under the port's lock, which the
// end takes itself.
//
//   ASSIGN_OR_RETURN(auto region, FabricRegion::Make(port, cache, memory));
//   region->descriptor(rail);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transports/fabric/port.h"
#include "transports/fabric/registration_cache.h"
#include "transports/transport.h"

namespace trnccl::fabric {

class FabricRegion final : public Region {
 public:
  // `cache` null: the provider knows all memory. Under the port's lock.
  static absl::StatusOr<std::unique_ptr<FabricRegion>> Make(
      std::shared_ptr<Port> port, std::shared_ptr<RegistrationCache> cache,
      const MemoryRange& memory);
  ~FabricRegion() override;

  void* descriptor(size_t rail) const {
    return entry_ == nullptr ? nullptr : entry_->descriptor(rail);
  }
  uint64_t key(size_t rail) const {
    return entry_ == nullptr ? 0 : entry_->key(rail);
  }
  // Where the memory that peers' offsets count from begins.
  const std::byte* registered_base() const {
    return entry_ == nullptr ? base() : entry_->base();
  }
  // The processor can't read or write it.
  bool is_device() const { return is_device_; }
  // Peers can't reach it any more, nor can sends from it.
  void Revoke() const {
    if (entry_ != nullptr) entry_->Revoke();
  }

 private:
  FabricRegion(std::shared_ptr<Port> port,
               std::shared_ptr<RegistrationCache> cache,
               const MemoryRange& memory)
      : Region(
            {.base = memory.base, .bytes = memory.bytes, .by_reference = true}),
        port_(std::move(port)),
        cache_(std::move(cache)),
        is_device_(memory.kind != MemoryRange::Kind::kHost) {}

  const std::shared_ptr<Port> port_;
  const std::shared_ptr<RegistrationCache> cache_;
  const bool is_device_;
  RegistrationCache::Entry* entry_ = nullptr;
};

}  // namespace trnccl::fabric
