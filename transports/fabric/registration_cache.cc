// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/registration_cache.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "ccl/base/status_macros.h"

namespace trnccl::fabric {
namespace {

MemoryRange ByPages(const MemoryRange& memory) {
  if (memory.kind != MemoryRange::Kind::kHost) return memory;
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t before = reinterpret_cast<uintptr_t>(memory.base) % page;
  MemoryRange pages = memory;
  pages.base -= before;
  pages.bytes = (before + memory.bytes + page - 1) / page * page;
  return pages;
}

}  // namespace

void RegistrationCache::Entry::Revoke() {
  revoked_ = true;
  for (Registration& registration : by_rail_) registration.Close();
}

bool RegistrationCache::Entry::Covers(const MemoryRange& memory) const {
  if (revoked_ || memory.kind != memory_.kind ||
      memory.device != memory_.device || memory.base < memory_.base)
    return false;
  // Descriptors are numbers that come again for other memory.
  if (memory.kind == MemoryRange::Kind::kDmabuf) return false;
  const auto offset = static_cast<size_t>(memory.base - memory_.base);
  return offset <= memory_.bytes && memory.bytes <= memory_.bytes - offset;
}

absl::StatusOr<RegistrationCache::Entry*> RegistrationCache::Take(
    const MemoryRange& memory) {
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (!entry->Covers(memory)) continue;
    ++entry->references_;
    return entry.get();
  }
  if (entries_.size() >= most_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "fabric: ", most_, " pieces of memory are registered already"));
  }
  auto entry = std::make_unique<Entry>();
  entry->memory_ = ByPages(memory);
  ASSIGN_OR_RETURN(entry->by_rail_, registrar_(entry->memory_));
  entry->references_ = 1;
  entries_.push_back(std::move(entry));
  return entries_.back().get();
}

void RegistrationCache::Drop(Entry* entry) {
  TRNCCL_CHECK(entry->references_ > 0);
  if (--entry->references_ > 0) return;
  std::erase_if(entries_, [entry](const std::unique_ptr<Entry>& known) {
    return known.get() == entry;
  });
}

}  // namespace trnccl::fabric
