// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What libfabric has gained since release 1.17, whose headers this is compiled
// with. Use nothing of it unless FabricLibrary::AtLeast() says that the loaded
// release knows it.
//
// Thread rule: constants and plain values.
//
//   if (library.AtLeast(kDmabufMajor, kDmabufMinor)) flags |= kMrDmabuf;
#pragma once

#include <cstddef>
#include <cstdint>

namespace trnccl::fabric {

// 1.20: registration of memory that's named by a dmabuf descriptor.
inline constexpr uint32_t kDmabufMajor = 1;
inline constexpr uint32_t kDmabufMinor = 20;
inline constexpr uint64_t kMrDmabuf = uint64_t{1} << 40;
struct MrDmabuf {
  int fd = -1;
  uint64_t offset = 0;
  size_t len = 0;
  void* base_addr = nullptr;
};

// 1.18: whether a provider may carry messages of one machine through shared
// memory of its own; they never are sent here.
inline constexpr uint32_t kSharedMemoryPermittedMajor = 1;
inline constexpr uint32_t kSharedMemoryPermittedMinor = 18;
inline constexpr int kOptSharedMemoryPermitted = 11;

// 1.18, EFA's own: whether it emulates writes by messages.
inline constexpr int kOptEfaEmulatedWrite = -(0xefa << 16) + 2;

}  // namespace trnccl::fabric
