// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// For tests under AddressSanitizer that open endpoints: libfabric 1.17's
// provider "net" loses a description of each.

extern "C" [[gnu::visibility("default")]] const char*
__lsan_default_suppressions();

const char* __lsan_default_suppressions() { return "leak:libfabric.so\n"; }
