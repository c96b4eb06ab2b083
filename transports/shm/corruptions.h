// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a broken peer may leave in its queues, for the conformance suite: each
// breaks the first message of a link, as its sender.
//
// Thread rule: the sender's owner calls them.
//
//   for (const auto& corrupt : Corruptions()) corrupt(sender, link);
#pragma once

#include <functional>
#include <vector>

#include "transports/transport.h"

namespace trnccl::shm {

std::vector<std::function<void(Transport&, LinkId)>> Corruptions();

}  // namespace trnccl::shm
