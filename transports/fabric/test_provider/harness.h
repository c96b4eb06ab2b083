// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What the tests of the test provider share: an endpoint with all that it
// needs, opened through libfabric's public calls as any program would, and
// settings that last for a test.
//
// Thread rule: a Side is its thread's own; settings are changed by one thread.
//
//   Setting seed("MANNERS_SEED", "7");
//   Side a({.fabric = "efa"}), b({.fabric = "efa"});
//   const fi_addr_t to_b = a.Insert(b);
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trnccl::manners {

// Sets an environment variable, and unsets it at the end.
class Setting {
 public:
  Setting(const char* name, const std::string& value);
  ~Setting();
  Setting(const Setting&) = delete;

 private:
  const char* name_;
};

using Info = std::unique_ptr<fi_info, void (*)(fi_info*)>;

// Hints that this provider can satisfy.
Info Hints(const std::string& fabric);
// Null where nothing suits.
Info Query(const fi_info* hints);

// Registered memory, filled with bytes that differ by `salt` and position.
class Memory {
 public:
  struct Options {
    size_t bytes = 64;
    uint8_t salt = 0;
    uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ |
                      FI_REMOTE_WRITE;
    fi_hmem_iface iface = FI_HMEM_SYSTEM;
  };
  Memory(fid_domain* domain, fid_ep* endpoint, const Options& options);
  ~Memory();
  Memory(const Memory&) = delete;

  std::byte* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes_.data()); }
  uint64_t key() const { return fi_mr_key(region_); }
  void* descriptor() const { return fi_mr_desc(region_); }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  void Deregister();

 private:
  std::vector<std::byte> bytes_;
  fid_mr* region_ = nullptr;
};

// What a queue gave: a completion, or an error.
struct Event {
  void* context = nullptr;
  uint64_t flags = 0;
  size_t bytes = 0;
  uint64_t data = 0;
  uint64_t tag = 0;
  fi_addr_t source = FI_ADDR_UNSPEC;
  int error = 0;
  std::string text;
};

// One endpoint of one NIC, and its own domain, queue and address vector.
// Opening stops at the first call that fails, which `failed` names.
class Side {
 public:
  struct Options {
    std::string fabric = "efa";
    size_t nic = 0;
    size_t completions = 0;
    uint64_t bind_flags = 0;
    fi_wait_obj wait = FI_WAIT_NONE;
  };
  explicit Side(const Options& options);
  ~Side();
  Side(const Side&) = delete;

  const std::string& failed() const { return failed_; }
  int error() const { return error_; }
  fi_info* info() { return info_.get(); }
  fid_fabric* fabric() { return fabric_; }
  fid_domain* domain() { return domain_; }
  fid_av* av() { return av_; }
  fid_cq* cq() { return cq_; }
  fid_ep* endpoint() { return endpoint_; }

  std::string Name();
  fi_addr_t Insert(const std::string& name);
  fi_addr_t Insert(Side& side) { return Insert(side.Name()); }
  // Registered until Deregister(), or this object's end.
  Memory* Register(const Memory::Options& options);
  // A context that lasts as long as this object.
  void* Context();
  // What was put back, or else what the queue has.
  std::optional<Event> Read();
  void PutBack(const Event& event) { put_back_.push_back(event); }
  void CloseEndpoint();

 private:
  void Open(const Options& options);
  bool Keep(int status, const char* call);

  std::string failed_;
  int error_ = 0;
  Info info_;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* av_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  std::deque<Event> put_back_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::vector<std::unique_ptr<fi_context2>> contexts_;
};

// Moves all sides, in turn, until `done`, with a bound on the turns. Their
// events are handed to `take`.
void Drive(const std::vector<Side*>& sides,
           const std::function<void(Side&, const Event&)>& take,
           const std::function<bool()>& done);
// The next event of the first side, while all move; theirs are put back.
Event Next(const std::vector<Side*>& sides);

}  // namespace trnccl::manners
