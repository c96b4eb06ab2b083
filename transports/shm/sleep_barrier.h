// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The order that a sleep needs: either the sleeper's last look sees the word
// that a peer has just written, or the peer sees the sleeper's flag. A full
// fence on both sides gives it, but would be paid with every message. So the
// sleeper, who has time, makes the kernel run one on all cores where ranks run;
// the peers need none then.
//
// Thread rule: thread-safe.
//
//   sleeper: flag = 1; RunSleepBarrier(); look once more; sleep
//   peer:    write a word; std::atomic_signal_fence(...); if (flag) ring
#pragma once

namespace trnccl::shm {

// Makes this process one that the barriers of others reach. False: the kernel
// can't, and both sides need fences.
bool JoinSleepBarriers();

// After a successful join only.
void RunSleepBarrier();

}  // namespace trnccl::shm
