// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a transport has registered of its caller's memory, so that buffers that
// overlap or come again while they're in use are registered once. Host memory
// is registered by whole pages, a device's exactly as it's named.
//
// Only what's referenced stays. A registration that outlived its memory would
// go on naming the old pages after the program has freed them and mapped the
// address anew: messages would come from and go to memory that nobody sees,
// without any error. Nothing tells this library of munmap(), so a last
// reference closes. Memory whose end is heard of (the library's own) keeps a
// reference as long as it lives: see ccl/transport_set.
//
// One a transport, none shared: a rank that leaves takes its memory away from
// its own peers by closing the entries, and other communicators keep theirs.
//
// Thread rule: thread-compatible; the port's lock guards it.
//
//   ASSIGN_OR_RETURN(RegistrationCache::Entry* entry, cache.Take(memory));
//   entry->descriptor(rail);
//   cache.Drop(entry);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "transports/fabric/rail.h"
#include "transports/transport.h"

namespace trnccl::fabric {

class RegistrationCache {
 public:
  class Entry {
   public:
    void* descriptor(size_t rail) const { return by_rail_[rail].descriptor(); }
    uint64_t key(size_t rail) const { return by_rail_[rail].key(); }
    // Of what's registered: at or before what was asked for.
    const std::byte* base() const { return memory_.base; }
    // Nobody reaches the memory any more. References stay, of no use.
    void Revoke();

   private:
    friend class RegistrationCache;
    bool Covers(const MemoryRange& memory) const;

    MemoryRange memory_;
    std::vector<Registration> by_rail_;
    size_t references_ = 0;
    bool revoked_ = false;
  };

  // Registers on every rail.
  using Registrar = std::function<absl::StatusOr<std::vector<Registration>>(
      const MemoryRange& memory)>;

  // At most so many entries, since adapters' tables end too.
  RegistrationCache(Registrar registrar, size_t most)
      : registrar_(std::move(registrar)), most_(most) {}

  // A reference to an entry that covers the memory.
  absl::StatusOr<Entry*> Take(const MemoryRange& memory);
  void Drop(Entry* entry);
  size_t size() const { return entries_.size(); }

 private:
  const Registrar registrar_;
  const size_t most_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace trnccl::fabric
