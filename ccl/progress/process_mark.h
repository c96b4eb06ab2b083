// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What tells a process from the child that it forks, without asking the kernel
// at each call: a child's memory says that its parent's threads, descriptors
// and communicators are its own.
//
// Thread rule: thread-safe.
//
//   handle->process_mark = ProcessMark();
//   ... if (handle->process_mark != ProcessMark()) it's the parent's
#pragma once

namespace trnccl {

// Never 0, and another number in every forked child.
int ProcessMark();

}  // namespace trnccl
