// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Which of libfabric's providers to take, on which adapters, and what they ask
// of us.
//
// Thread rule: thread-safe; what it returns is a plain value.
//
//   ASSIGN_OR_RETURN(Provider provider, ChooseProvider(library, options));
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transports/fabric/fabric.h"
#include "transports/fabric/library.h"

namespace trnccl::fabric {

struct InfoDeleter {
  const FabricLibrary* library;
  void operator()(fi_info* info) const { library->freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDeleter>;

struct Provider {
  std::string name;            // "net", "tcp;ofi_rxm", "efa"
  bool writes = false;         // FabricProtocol::kWrite, else tagged
  bool registers = false;      // local memory must be registered (FI_MR_LOCAL)
  bool virtual_keys = false;   // remote addresses are the owner's own
  bool provides_keys = false;  // it chooses the keys of registered memory
  bool binds_memory = false;   // registered memory belongs to an endpoint
  bool resends = false;        // lost packets, itself, while it's called
  // What's sent lies in the kernel's TCP until it has arrived, and may be lost
  // if this process ends.
  bool streams = false;
  // Its endpoints connect to each other, and may lose messages where both do
  // so at once.
  bool crosses = false;
  // Deregistering ends remote writes, even those that are on their way.
  bool revokes = false;
  bool reaches_devices = false;  // their memory may be registered
  size_t eager_bytes = 0;        // payload of a short message
  size_t slice_bytes = 0;        // the longest message that's advisable
  std::vector<Info> rails;       // one endpoint each
};

// "tcp on eth0", each once, of all providers that are known.
std::vector<std::string> ListOffers(const FabricLibrary& library,
                                    const PortOptions& options);

// The longest message that's advisable over a provider, where the kernel's TCP
// has that congestion control.
size_t SliceBytesOf(std::string_view provider,
                    std::string_view congestion_control);

// NotFound, with what there is, where nothing fits.
absl::StatusOr<Provider> ChooseProvider(const FabricLibrary& library,
                                        const PortOptions& options);

}  // namespace trnccl::fabric
