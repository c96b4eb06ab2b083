// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The one lock of the provider in this process, and the check that an object
// isn't used by a child that was forked after it was made: such a child gets
// an error and touches nothing.
//
// Thread rule: any thread.
//
//   return Guarded(fabric->generation, [&] { return Open(*fabric); });
#pragma once

#include <rdma/fi_errno.h>

#include <cstdint>
#include <mutex>
#include <utility>

namespace trnccl::manners {

std::mutex& ProviderMutex();
// How many forks lie between this process and the one that loaded the provider.
uint64_t ForkGeneration();

template <typename Body>
auto Guarded(uint64_t generation, Body body) -> decltype(body()) {
  std::lock_guard<std::mutex> lock(ProviderMutex());
  if (generation != ForkGeneration()) return -FI_EOPBADSTATE;
  return body();
}

}  // namespace trnccl::manners
