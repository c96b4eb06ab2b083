// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Helpers for objects that libfabric's callers hold by their fid, and for
// tables of calls.
//
// Thread rule: any thread.
//
//   auto* cq = ObjectOf<CompletionQueue, fid_cq>(object);
//   fi_ops ops = {.size = sizeof(fi_ops), .bind = Unsupported};
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

namespace trnccl::manners {

// Whatever this provider doesn't offer.
template <typename Result, typename... Arguments>
Result Unsupported(Arguments...) {
  return -FI_ENOSYS;
}

// Each Object derives from its Fid, which begins with the fid.
template <typename Object, typename Fid>
Object* ObjectOf(fid* object) {
  return static_cast<Object*>(reinterpret_cast<Fid*>(object));
}

}  // namespace trnccl::manners
