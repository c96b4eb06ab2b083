// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/context_table.h"

#include <rdma/fabric.h>

#include <algorithm>
#include <cstring>

#include "transports/fabric/test_provider/breach.h"

namespace trnccl::manners {
namespace {

constexpr unsigned char kOurs = 0xa5;

}  // namespace

void ContextTable::Take(void* context) {
  if (context == nullptr) Breach("FI_CONTEXT2 needs a context, not null");
  const auto start = reinterpret_cast<uintptr_t>(context);
  const auto next = in_flight_.upper_bound(start);
  const bool over_next =
      next != in_flight_.end() && start + sizeof(fi_context2) > *next;
  const bool over_last = next != in_flight_.begin() &&
                         *std::prev(next) + sizeof(fi_context2) > start;
  if (over_next || over_last)
    Breach("context ", context, " is used again before its completion");
  in_flight_.insert(start);
  std::memset(context, kOurs, sizeof(fi_context2));
}

void ContextTable::Return(void* context) {
  if (in_flight_.erase(reinterpret_cast<uintptr_t>(context)) == 0)
    Breach("context ", context, " completes without having been posted");
  const auto* bytes = static_cast<const unsigned char*>(context);
  if (!std::all_of(bytes, bytes + sizeof(fi_context2),
                   [](unsigned char byte) { return byte == kOurs; }))
    Breach("context ", context, " was written to before its completion");
}

void ContextTable::Forget(void* context) {
  in_flight_.erase(reinterpret_cast<uintptr_t>(context));
}

}  // namespace trnccl::manners
