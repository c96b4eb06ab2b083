// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// libfabric, found at run time: a machine without it still loads this library,
// and only a job of several nodes misses it. The few functions that libfabric
// exports are here; all others are reached through the objects that it makes.
//
// Not here: which provider to take (provider.h), endpoints (rail.h).
//
// Thread rule: thread-safe.
//
//   ASSIGN_OR_RETURN(const FabricLibrary* fabric, FabricLibrary::Load(path));
//   fabric->getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &list);
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trnccl::fabric {

struct FabricLibrary {
  int (*getinfo)(uint32_t version, const char* node, const char* service,
                 uint64_t flags, const fi_info* hints, fi_info** info);
  void (*freeinfo)(fi_info* info);
  fi_info* (*dupinfo)(const fi_info* info);
  int (*fabric)(fi_fabric_attr* attributes, fid_fabric** fabric, void* context);
  const char* (*strerror)(int code);
  uint32_t (*version)();
  std::string path;

  // `path`: what to open, "" for the system's own libfabric.so.1. Loaded once a
  // process and path, and never unloaded: providers leave threads and handlers
  // behind.
  static absl::StatusOr<const FabricLibrary*> Load(const std::string& path);

  // Whether the loaded library is at least of that release.
  bool AtLeast(uint32_t major, uint32_t minor) const {
    return FI_VERSION_GE(version(), FI_VERSION(major, minor));
  }

  // "fi_send: Connection refused": what a call of libfabric returned, as an
  // error that says what happened; Unavailable unless it's about memory.
  absl::Status Error(const std::string& call, ssize_t code) const;
};

}  // namespace trnccl::fabric
