// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A rank's life in a trial, as the body of a process of its own: it joins,
// makes the phase's calls until the fault ends them, and looks whether all is
// as promised: right results or an error that names the victim; the same error
// for later calls, at once; other communicators that go on; nothing left
// behind.
//
//   LiveAsRank(fault, rank, &board);    // then the process may end
//
// What isn't as promised is noted on the board.
#pragma once

#include "tests/faults/campaign/board.h"
#include "tests/faults/campaign/fault.h"

namespace trnccl {

void LiveAsRank(const Fault& fault, int rank, Board* board);

}  // namespace trnccl
