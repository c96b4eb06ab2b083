// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Ranks as threads of one process, or stepped in turn by one thread: the
// simplest transport that keeps the contract, and the yardstick for the others.
// A link holds one message, in memory of its own. Not for speed: a payload for
// several peers is copied for each.
//
// Thread rule: that of Transport.
//
//   ASSIGN_OR_RETURN(auto transport, MakeInprocTransport({}));
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "transports/doorbell.h"
#include "transports/transport.h"

namespace trnccl {

struct InprocOptions {
  size_t slice_bytes = 64 << 10;  // alike on all ranks
  // Rung by peers while this rank sleeps; null: this rank never sleeps.
  const Doorbell* doorbell = nullptr;
};

absl::StatusOr<std::unique_ptr<Transport>> MakeInprocTransport(
    const InprocOptions& options);

}  // namespace trnccl
