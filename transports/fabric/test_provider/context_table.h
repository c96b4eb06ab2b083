// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The contexts that belong to the provider in mode FI_CONTEXT2: from the post
// of an operation until its completion is read, the 64 bytes are the
// provider's to write, and no other operation may use them.
//
// Thread rule: thread-compatible.
//
//   contexts.Take(context);    // aborts if it's in flight already
//   contexts.Return(context);  // aborts if somebody else wrote to it
#pragma once

#include <cstdint>
#include <set>

namespace trnccl::manners {

class ContextTable {
 public:
  void Take(void* context);
  void Return(void* context);
  // When its endpoint or queue is closed, and its memory may be gone.
  void Forget(void* context);

 private:
  std::set<uintptr_t> in_flight_;
};

}  // namespace trnccl::manners
