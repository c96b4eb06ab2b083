// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// While a group is made: a rank that can't join it, for want of descriptors
// say, tells the others so by the group's store, and they needn't wait for it.
// Who has died can't tell: see members.h.
//
// Thread rule: thread-compatible.
//
//   GivenUp given_up(store, key, address);
//   if (auto why = given_up.Heard(); !why.empty()) throw ...;
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/torch/torch_names.h"

namespace trnccl::torch_binding {

class GivenUp {
 public:
  // Of the group that meets at rank 0's `address`, which the store has under
  // `key`: what was told of an earlier one says nothing. Borrows the store.
  GivenUp(c10d::Store* store, const std::string& key,
          const std::vector<uint8_t>& address);

  // This rank gives up. Never throws: the others have their deadline still.
  void Tell(const std::string& why) noexcept;

  // Why another rank has, or "". It looks now and then only.
  std::string Heard();
  // The same, at once.
  std::string HeardNow();

 private:
  using Clock = std::chrono::steady_clock;

  c10d::Store* store_;
  std::string key_;
  Clock::time_point next_look_;
};

}  // namespace trnccl::torch_binding
