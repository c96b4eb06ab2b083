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

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

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

// What newer interfaces append to structures that are passed to libfabric; to
// zero, which is their default, or to be written to.
struct MrAttributes {
  fi_mr_attr known = {};
  uint64_t newer[8] = {};
};
struct QueueError {
  fi_cq_err_entry known = {};
  uint64_t newer[8] = {};
};

// 1.18: whether a provider may carry messages of one machine through shared
// memory of its own; they never are sent here.
inline constexpr uint32_t kSharedMemoryPermittedMajor = 1;
inline constexpr uint32_t kSharedMemoryPermittedMinor = 18;
inline constexpr int kOptSharedMemoryPermitted = 11;

// 1.18, EFA's own: whether it emulates writes by messages.
inline constexpr int kOptEfaEmulatedWrite = -(0xefa << 16) + 2;

// 2.0: the longest message, where that isn't the longest remote write.
inline constexpr int kOptMaxMessageBytes = 12;

}  // namespace trnccl::fabric
