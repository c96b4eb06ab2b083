// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// One endpoint on one adapter, with its completion queue and address vector:
// libfabric's objects, opened, and closed in the right order. Posting and
// polling stay libfabric's calls; what they mean is port.h's.
//
// Over a provider whose connections may cross, there are two endpoints: one
// that calls peers' taking ones, and one that takes calls. net and tcp tell a
// connection that crosses another from one that replaces it by a number that a
// closed connection may have left behind; then they drop the one in use, and
// what was sent over it is lost without a word.
//
// Thread rule: thread-compatible; its port's lock guards it.
//
//   ASSIGN_OR_RETURN(auto rail, Rail::Open(library, provider, *info));
//   ASSIGN_OR_RETURN(fi_addr_t peer, rail->Insert(address));
//   fi_send(rail->endpoint(End::kCalling), ...);
//
// What's posted may be used until the endpoint is closed; so whoever posts
// closes it first, then deregisters its memory, then destroys the rail.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transports/fabric/library.h"
#include "transports/fabric/provider.h"
#include "transports/transport.h"

namespace trnccl::fabric {

template <typename Object>
struct FidDeleter {
  void operator()(Object* object) const { fi_close(&object->fid); }
};
template <typename Object>
using Fid = std::unique_ptr<Object, FidDeleter<Object>>;

// Memory as an adapter knows it. Empty where it needn't.
class Registration {
 public:
  Registration() = default;
  explicit Registration(fid_mr* region) : region_(region) {}

  // Nobody reaches the memory through it any more.
  void Close() { region_.reset(); }

  void* descriptor() const {
    return region_ == nullptr ? nullptr : fi_mr_desc(region_.get());
  }
  uint64_t key() const {
    return region_ == nullptr ? 0 : fi_mr_key(region_.get());
  }

 private:
  Fid<fid_mr> region_;
};

// Of a rail's endpoints.
enum class End : uint8_t { kTaking, kCalling };

class Rail {
 public:
  // `info` is one of the provider's rails.
  static absl::StatusOr<std::unique_ptr<Rail>> Open(
      const FabricLibrary& library, const Provider& provider,
      const fi_info& info);

  // Takes back all that's posted: nothing is sent, received or written any
  // more. A provider may refuse as long as memory is bound to the endpoint;
  // then the end of that memory's registration ends its use.
  void CloseEndpoints();

  // Both may be one.
  fid_ep* endpoint(End end) const {
    return end == End::kCalling && calling_ != nullptr ? calling_.get()
                                                       : taking_.get();
  }
  std::span<const End> ends() const {
    static constexpr std::array<End, 2> kEnds = {End::kTaking, End::kCalling};
    return std::span(kEnds).first(calling_ == nullptr ? 1 : 2);
  }
  fid_cq* queue() const { return queue_.get(); }
  // Becomes readable when there's something to poll for; -1 if it can't say.
  int wait_fd() const { return wait_fd_; }
  // Whether that descriptor may be slept on now: nothing is waiting to be
  // polled. True without a descriptor.
  bool MaySleep() const;
  // The taking endpoint's address, as bytes.
  const std::string& address() const { return address_; }
  // The calling one's; "" if both are one.
  const std::string& calling_address() const { return calling_address_; }
  const std::string& adapter() const { return adapter_; }

  // How many may be posted at once.
  size_t transmits() const { return transmits_; }
  size_t receives() const { return receives_; }
  // The longest message; remote writes may be longer.
  size_t message_bytes() const { return message_bytes_; }
  // Whether remote writes are made of messages, which the target's processor
  // must take.
  bool EmulatesWrites() const;

  absl::StatusOr<fi_addr_t> Insert(const std::string& address);
  // This very endpoint, as a peer of itself.
  absl::StatusOr<fi_addr_t> Self();

  // `access`: FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ,
  // FI_REMOTE_WRITE.
  absl::StatusOr<Registration> Register(const MemoryRange& memory,
                                        uint64_t access);

  // What a call returned, as an error that names this rail.
  absl::Status Checked(const char* call, ssize_t code) const;
  // What the provider says of an error that its queue reported.
  std::string Explain(const fi_cq_err_entry& error) const;

 private:
  Rail(const FabricLibrary& library, const Provider& provider);
  absl::Status OpenObjects(const fi_info& info);
  absl::Status OpenQueue();
  absl::StatusOr<Fid<fid_ep>> OpenEndpoint(const fi_info& info);
  absl::StatusOr<std::string> AddressOf(const Fid<fid_ep>& endpoint) const;
  // Makes wait_fd_ one that can be slept on, or -1.
  void ProveWaitFd();
  void ReadLimits(const fi_info& info);
  absl::StatusOr<fid_mr*> RegisterDevice(const MemoryRange& memory,
                                         uint64_t access);
  const FabricLibrary& library_;
  std::string provider_;
  std::string adapter_;
  bool provides_keys_;
  bool binds_memory_;
  bool crosses_;
  uint64_t next_key_ = 1;
  std::string address_;
  std::string calling_address_;
  int wait_fd_ = -1;
  size_t transmits_ = 0;
  size_t receives_ = 0;
  size_t message_bytes_ = 0;
  fi_addr_t self_ = FI_ADDR_UNSPEC;
  // Closed from the last to the first.
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  Fid<fid_cq> queue_;
  Fid<fid_av> addresses_;
  Fid<fid_ep> taking_;
  Fid<fid_ep> calling_;  // null: the other calls, too
};

}  // namespace trnccl::fabric
