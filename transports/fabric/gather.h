// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A header and a payload as one message, with the descriptors of their memory.
//
// Thread rule: plain values.
//
//   Gathered gathered;
//   gathered.Add(&header, sizeof(header), descriptor);
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>

namespace trnccl::fabric {

struct Gathered {
  std::array<iovec, 2> parts;
  std::array<void*, 2> descriptors;
  size_t count = 0;

  void Add(const void* base, size_t bytes, void* descriptor) {
    parts[count] = {const_cast<void*>(base), bytes};
    descriptors[count++] = descriptor;
  }
};

}  // namespace trnccl::fabric
