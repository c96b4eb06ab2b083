// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a call would cost on an engine (transports/engine.h) that copies memory
// of other processes through the kernel: enough to choose between that and a
// message plan, by the same model. And when such a copy pays for one message.
//
// Thread rule: pure function.
//
//   double seconds = CopyingEngineSeconds(
//       {.collective = Collective::kAllReduce, .ranks = 2, .block_bytes =
//       4096}, model);
#pragma once

#include <cstddef>
#include <cstdint>

#include "algorithms/cost.h"
#include "ccl/base/types.h"

namespace trnccl {

struct EngineWork {
  Collective collective = Collective::kAllReduce;
  int ranks = 1;
  int64_t block_bytes = 0;
};

// Of the busiest rank, with the exchange before and the barrier after.
double CopyingEngineSeconds(const EngineWork& work, const LinkModel& model);

// From here on a message costs less if the receiver copies it once, by the
// kernel, than if both copy it through slices; SIZE_MAX: never.
size_t PeerCopyMinBytes(const LinkModel& model);

// Of asking all ranks for the engine.
double EngineExchangeSeconds(const LinkModel& model);

}  // namespace trnccl
