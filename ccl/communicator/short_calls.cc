// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/communicator/short_calls.h"

#include <utility>

namespace trnccl {

void ShortCalls::Learn(ShortCall call) {
  auto& slot = calls_[SlotOf(call.key)];
  slot = std::make_unique<const ShortCall>(std::move(call));
}

}  // namespace trnccl
