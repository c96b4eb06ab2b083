// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a broken peer may leave in its queues, for the conformance suite.
#pragma once

#include <functional>
#include <vector>

#include "transports/transport.h"

namespace trnccl::shm {

std::vector<std::function<void(Transport&, LinkId)>> Corruptions();

}  // namespace trnccl::shm
