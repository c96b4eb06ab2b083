// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Registered memory. "Device" memory (FI_HMEM_NEURON, dmabuf) is plain memory
// with one habit of the real thing: what arrives in it isn't seen until the
// owner of the region has read from it through the same NIC.
//
// Thread rule: under ProviderMutex() (fork_guard.h).
//
//   Segment segment = LocalSegment(use, iov, desc);  // aborts unless it's ours
//   Store(*segment.region, segment.base, bytes);
#pragma once

#include <rdma/fi_domain.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transports/fabric/test_provider/fabric.h"
#include "transports/fabric/test_provider/wire.h"

namespace trnccl::manners {

// Registration of dmabuf, which headers before libfabric 1.20 don't have.
constexpr uint64_t kMrDmabuf = uint64_t{1} << 40;
struct Dmabuf {
  int fd;
  uint64_t offset;
  size_t len;
  void* base_addr;
};

struct Region : fid_mr {
  struct Late {
    std::byte* to;
    Bytes bytes;
  };

  Domain* domain = nullptr;
  std::byte* base = nullptr;
  size_t bytes = 0;
  uint64_t access = 0;
  bool device = false;
  bool enabled = false;
  bool closed = false;
  const void* endpoint = nullptr;  // with FI_MR_ENDPOINT
  std::vector<Late> late;          // arrived, and not fenced yet
};

// A local buffer of an operation; no region where none is needed (inject).
struct Segment {
  std::byte* base = nullptr;
  size_t bytes = 0;
  std::shared_ptr<Region> region;
};

// Who uses local memory, and for what (FI_SEND, FI_RECV, FI_READ, FI_WRITE).
struct LocalUse {
  Domain& domain;
  const void* endpoint;
  uint64_t access;
  const char* call;
};
Segment LocalSegment(const LocalUse& use, const iovec& buffer,
                     const void* desc);

// A peer's access to memory of this domain.
struct RemoteUse {
  Domain& domain;
  const void* endpoint;
  uint64_t access;
  uint64_t address;
  uint64_t bytes;
  uint64_t key;
};
struct Target {
  Outcome outcome = Outcome::kOk;
  Region* region = nullptr;  // null for no bytes
};
Target RemoteTarget(const RemoteUse& use);

// Bytes that arrived.
void Store(Region& region, std::byte* to, std::span<const std::byte> bytes);
void Scatter(std::span<const Segment> to, std::span<const std::byte> bytes);
// Makes visible what arrived before.
void Fence(Region& region);

extern fi_ops_mr kRegistration;

}  // namespace trnccl::manners
