// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// For a thread that shares a core with one that computes, and has little to do
// each time it's woken: the scheduler lets it run at once, not after the other
// has used up its slice of some milliseconds. It gets no larger share of the
// core. A hint: kernels before 6.12 don't know it.
//
// Thread rule: concerns the calling thread alone.
//
//   std::thread([] { UseShortSlices(); ... });
#pragma once

namespace trnccl {

void UseShortSlices();

}  // namespace trnccl
