// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/rail.h"

#include <poll.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "transports/fabric/newer.h"

namespace trnccl::fabric {
namespace {

// Completions that may be outstanding before the endpoint pushes back.
constexpr size_t kQueueEntries = 4096;

template <typename Object>
struct Opened {
  Object* object = nullptr;
  Fid<Object> Take() { return Fid<Object>(object); }
};

bool IsReadable(int fd) {
  pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 1;
}

// The epoll descriptor that's watched by this one; -1 if there's none.
int WatchedEpoll(int fd) {
  std::ifstream info(absl::StrCat("/proc/self/fdinfo/", fd));
  std::string word;
  while (info >> word) {
    int watched = -1;
    if (word != "tfd:" || !(info >> watched)) continue;
    std::array<char, 64> target = {};
    const std::string link = absl::StrCat("/proc/self/fd/", watched);
    if (readlink(link.c_str(), target.data(), target.size() - 1) > 0 &&
        std::string_view(target.data()) == "anon_inode:[eventpoll]")
      return watched;
  }
  return -1;
}

}  // namespace

Rail::Rail(const FabricLibrary& library, const Provider& provider)
    : library_(library),
      provider_(provider.name),
      provides_keys_(provider.provides_keys),
      binds_memory_(provider.binds_memory),
      crosses_(provider.crosses) {}

absl::Status Rail::Checked(const char* call, ssize_t code) const {
  if (code >= 0) return absl::OkStatus();
  return library_.Error(
      absl::StrCat(call, " of provider ", provider_, " on ", adapter_), code);
}

absl::StatusOr<std::unique_ptr<Rail>> Rail::Open(const FabricLibrary& library,
                                                 const Provider& provider,
                                                 const fi_info& info) {
  auto rail = absl::WrapUnique(new Rail(library, provider));
  rail->adapter_ = info.domain_attr->name;
  RETURN_IF_ERROR(rail->OpenObjects(info));
  rail->ProveWaitFd();
  rail->ReadLimits(info);
  return rail;
}

void Rail::ReadLimits(const fi_info& info) {
  transmits_ = std::max<size_t>(info.tx_attr->size, 1);
  receives_ = std::max<size_t>(info.rx_attr->size, 1);
  message_bytes_ = info.ep_attr->max_msg_size;
  size_t most = 0;
  size_t bytes = sizeof(most);
  if (fi_getopt(&endpoint(End::kCalling)->fid, FI_OPT_ENDPOINT,
                kOptMaxMessageBytes, &most, &bytes) == 0 &&
      bytes == sizeof(most))
    message_bytes_ = std::min(message_bytes_, most);
}

bool Rail::EmulatesWrites() const {
  bool emulates = false;
  size_t bytes = sizeof(emulates);
  return fi_getopt(&endpoint(End::kCalling)->fid, FI_OPT_ENDPOINT,
                   kOptEfaEmulatedWrite, &emulates, &bytes) == 0 &&
         emulates;
}

void Rail::CloseEndpoints() {
  for (Fid<fid_ep>* endpoint : {&calling_, &taking_}) {
    if (*endpoint != nullptr && fi_close(&(*endpoint)->fid) == 0)
      static_cast<void>(endpoint->release());
  }
}

absl::Status Rail::OpenObjects(const fi_info& info) {
  // libfabric takes the description as its own to change.
  const Info own(library_.dupinfo(&info), {&library_});
  if (own == nullptr) return Checked("fi_dupinfo", -FI_ENOMEM);
  Opened<fid_fabric> fabric;
  RETURN_IF_ERROR(Checked(
      "fi_fabric", library_.fabric(own->fabric_attr, &fabric.object, nullptr)));
  fabric_ = fabric.Take();
  Opened<fid_domain> domain;
  RETURN_IF_ERROR(Checked("fi_domain", fi_domain(fabric_.get(), own.get(),
                                                 &domain.object, nullptr)));
  domain_ = domain.Take();
  RETURN_IF_ERROR(OpenQueue());
  fi_av_attr attributes = {};
  attributes.type = FI_AV_TABLE;
  Opened<fid_av> addresses;
  RETURN_IF_ERROR(Checked(
      "fi_av_open",
      fi_av_open(domain_.get(), &attributes, &addresses.object, nullptr)));
  addresses_ = addresses.Take();
  ASSIGN_OR_RETURN(taking_, OpenEndpoint(*own));
  ASSIGN_OR_RETURN(address_, AddressOf(taking_));
  if (!crosses_) return absl::OkStatus();
  ASSIGN_OR_RETURN(calling_, OpenEndpoint(*own));
  ASSIGN_OR_RETURN(calling_address_, AddressOf(calling_));
  return absl::OkStatus();
}

absl::Status Rail::OpenQueue() {
  fi_cq_attr attributes = {};
  attributes.size = kQueueEntries;
  attributes.format = FI_CQ_FORMAT_DATA;
  attributes.wait_obj = FI_WAIT_FD;
  Opened<fid_cq> queue;
  ssize_t code = fi_cq_open(domain_.get(), &attributes, &queue.object, nullptr);
  if (code == -FI_ENOSYS || code == -FI_EOPNOTSUPP || code == -FI_EINVAL) {
    attributes.wait_obj = FI_WAIT_NONE;
    code = fi_cq_open(domain_.get(), &attributes, &queue.object, nullptr);
  }
  RETURN_IF_ERROR(Checked("fi_cq_open", code));
  queue_ = queue.Take();
  const bool waits = attributes.wait_obj == FI_WAIT_FD &&
                     fi_control(&queue_->fid, FI_GETWAIT, &wait_fd_) == 0;
  if (!waits) wait_fd_ = -1;
  return absl::OkStatus();
}

absl::StatusOr<Fid<fid_ep>> Rail::OpenEndpoint(const fi_info& info) {
  // Like all openers, this one takes the description as its own to change.
  const Info own(library_.dupinfo(&info), {&library_});
  if (own == nullptr) return Checked("fi_dupinfo", -FI_ENOMEM);
  Opened<fid_ep> opened;
  RETURN_IF_ERROR(Checked("fi_endpoint", fi_endpoint(domain_.get(), own.get(),
                                                     &opened.object, nullptr)));
  Fid<fid_ep> endpoint = opened.Take();
  RETURN_IF_ERROR(Checked("fi_ep_bind (address vector)",
                          fi_ep_bind(endpoint.get(), &addresses_->fid, 0)));
  RETURN_IF_ERROR(
      Checked("fi_ep_bind (completion queue)",
              fi_ep_bind(endpoint.get(), &queue_->fid, FI_TRANSMIT | FI_RECV)));
  if (library_.AtLeast(kSharedMemoryPermittedMajor,
                       kSharedMemoryPermittedMinor)) {
    // Only few providers know it, and then it matters.
    const bool permitted = false;
    static_cast<void>(fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT,
                                kOptSharedMemoryPermitted, &permitted,
                                sizeof(permitted)));
  }
  RETURN_IF_ERROR(Checked("fi_enable", fi_enable(endpoint.get())));
  return endpoint;
}

absl::StatusOr<std::string> Rail::AddressOf(const Fid<fid_ep>& endpoint) const {
  std::array<char, 256> name = {};
  size_t bytes = name.size();
  RETURN_IF_ERROR(
      Checked("fi_getname", fi_getname(&endpoint->fid, name.data(), &bytes)));
  return std::string(name.data(), bytes);
}

// The queue's descriptor becomes readable with each completion, and must not
// stay so once it was read. With net of release 1.17 it does: its fi_trywait()
// resets nothing. There the sockets' own epoll, which it watches, tells enough,
// since queues are empty whenever anyone sleeps.
void Rail::ProveWaitFd() {
  if (wait_fd_ < 0) return;
  if (fi_cq_signal(queue_.get()) != 0) return;
  fi_cq_data_entry entry;
  static_cast<void>(fi_cq_read(queue_.get(), &entry, 1));
  static_cast<void>(MaySleep());
  if (IsReadable(wait_fd_)) wait_fd_ = WatchedEpoll(wait_fd_);
}

bool Rail::MaySleep() const {
  if (wait_fd_ < 0) return true;
  fid* waited = &queue_->fid;
  return fi_trywait(fabric_.get(), &waited, 1) == FI_SUCCESS;
}

absl::StatusOr<fi_addr_t> Rail::Insert(const std::string& address) {
  // A provider reads as many bytes as its kind of address has.
  if (address.size() != address_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("its address has ", address.size(), " bytes, one of ",
                     provider_, " on ", adapter_, " has ", address_.size(),
                     "; all ranks need the same provider and address family"));
  }
  fi_addr_t peer = FI_ADDR_UNSPEC;
  const int inserted =
      fi_av_insert(addresses_.get(), address.data(), 1, &peer, 0, nullptr);
  if (inserted == 1) return peer;
  RETURN_IF_ERROR(Checked("fi_av_insert", inserted));
  return absl::UnavailableError(absl::StrCat("fi_av_insert of provider ",
                                             provider_, " on ", adapter_,
                                             " refused its address"));
}

absl::StatusOr<fi_addr_t> Rail::Self() {
  if (self_ == FI_ADDR_UNSPEC) {
    ASSIGN_OR_RETURN(self_, Insert(address_));
  }
  return self_;
}

absl::StatusOr<fid_mr*> Rail::RegisterDevice(const MemoryRange& memory,
                                             uint64_t access) {
  const bool dmabuf = memory.kind == MemoryRange::Kind::kDmabuf;
  if (dmabuf && !library_.AtLeast(kDmabufMajor, kDmabufMinor)) {
    return absl::UnimplementedError(absl::StrCat(
        "libfabric at \"", library_.path,
        "\" is older than 1.20, which first knows dmabuf; load a newer one by "
        "TRNCCL_FABRIC_LIBRARY"));
  }
  const iovec pointer = {const_cast<std::byte*>(memory.base), memory.bytes};
  const MrDmabuf described = {
      .fd = memory.dmabuf_fd,
      .offset = memory.dmabuf_offset,
      .len = memory.bytes,
      .base_addr = const_cast<std::byte*>(memory.base) - memory.dmabuf_offset};
  MrAttributes attributes;
  fi_mr_attr& known = attributes.known;
  known.mr_iov = dmabuf ? reinterpret_cast<const iovec*>(&described) : &pointer;
  known.iov_count = 1;
  known.access = access;
  known.requested_key = provides_keys_ ? 0 : next_key_++;
  known.iface = FI_HMEM_NEURON;
  known.device.neuron = memory.device;
  fid_mr* region = nullptr;
  RETURN_IF_ERROR(Checked(
      "fi_mr_regattr",
      fi_mr_regattr(domain_.get(), &known, dmabuf ? kMrDmabuf : 0, &region)));
  return region;
}

absl::StatusOr<Registration> Rail::Register(const MemoryRange& memory,
                                            uint64_t access) {
  fid_mr* region = nullptr;
  if (memory.kind != MemoryRange::Kind::kHost) {
    ASSIGN_OR_RETURN(region, RegisterDevice(memory, access));
  } else {
    const uint64_t key = provides_keys_ ? 0 : next_key_++;
    RETURN_IF_ERROR(
        Checked("fi_mr_reg", fi_mr_reg(domain_.get(), memory.base, memory.bytes,
                                       access, 0, key, 0, &region, nullptr)));
  }
  Registration registration(region);
  if (binds_memory_) {
    RETURN_IF_ERROR(
        Checked("fi_mr_bind", fi_mr_bind(region, &taking_->fid, 0)));
    RETURN_IF_ERROR(Checked("fi_mr_enable", fi_mr_enable(region)));
  }
  return registration;
}

std::string Rail::Explain(const fi_cq_err_entry& error) const {
  std::array<char, 256> buffer = {};
  const char* said =
      fi_cq_strerror(queue_.get(), error.prov_errno, error.err_data,
                     buffer.data(), buffer.size());
  return absl::StrCat("provider ", provider_, " on ", adapter_,
                      " says: ", library_.strerror(error.err),
                      said == nullptr || *said == '\0'
                          ? std::string()
                          : absl::StrCat(" (", said, ")"));
}

}  // namespace trnccl::fabric
