// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The one place that names concrete transports: makes those that a communicator
// needs, connects each rank by the first that reaches it, and answers for all
// of them together.
//
// To add a transport: a row of the table in transport_set.cc.
//
// Thread rule: thread-compatible; owned with its communicator.
//
//   ASSIGN_OR_RETURN(auto set, TransportSet::Create(options));
//   ... all ranks exchange set->address() ...
//   RETURN_IF_ERROR(set->Connect(peers, deadline));
//   set->routes()[3].transport->Peek(...);
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/clock.h"
#include "ccl/base/membership.h"
#include "ccl/base/settings.h"
#include "ccl/route.h"
#include "transports/doorbell.h"
#include "transports/engine.h"
#include "transports/peer_memory.h"
#include "transports/transport.h"

namespace trnccl {

// How a rank goes onto the network. Communicators of a process that have it
// alike share its endpoints.
struct NetworkChoice {
  std::vector<std::string> adapters;   // and no others; empty: by the rest
  std::vector<std::string> addresses;  // its own of IP, best first
  std::vector<std::string> pci;        // of adapters on the bus, best first
  int sharers = 1;                     // ranks of the node
};

class TransportSet {
 public:
  struct Options {
    Membership membership;
    const Settings* settings = nullptr;  // read during Create() alone
    const Doorbell* doorbell = nullptr;  // outlives this
    int lanes = 1;                       // alike on all ranks
    int nodes = 1;                       // that the ranks are on
    NetworkChoice network;
    uint32_t first_sequence = 0;  // of each link's messages; alike on all ranks
  };
  static absl::StatusOr<std::unique_ptr<TransportSet>> Create(
      const Options& options);

  // Which peers a transport is for.
  enum class Reach : uint8_t { kProcess, kNode, kAnywhere };
  // For tests that bring transports of their own, in place of Create().
  struct Brought {
    std::unique_ptr<Transport> transport;
    Reach reach = Reach::kAnywhere;
  };
  static std::unique_ptr<TransportSet> Of(const Options& options,
                                          std::vector<Brought> transports);

  // What the other ranks need of this one, as text.
  std::string address() const;

  struct Peer {
    std::string address;  // its set's address(); this rank's own is unused
    std::string host;     // its node, and how errors name it
    std::string process;  // alike for the ranks of one process
  };
  struct ConnectRequest {
    std::vector<Peer> peers;  // by rank
    Deadline deadline = Deadline::Never();
    const std::atomic<bool>* abort = nullptr;
  };
  // Unavailable, naming the rank and what was tried, if one can't be reached.
  absl::Status Connect(const ConnectRequest& request);

  const Routes& routes() const { return routes_; }
  // Null where no engine serves all ranks.
  Engine* engine() const { return engine_.get(); }
  // "shm", or the names of all that are used.
  const std::string& name() const { return name_; }
  // The longest message that all of the transports take.
  size_t slice_bytes() const { return slice_bytes_; }

  absl::Status Progress();
  // Whether nothing that was sent needs more calls (Transport::unsent).
  bool AllSent() const;
  // Whether any must be called though there's nothing to do here
  // (Traits::needs_calls).
  bool NeedsCalls() const;
  // Whether something may have come (Transport::TakeArrived).
  bool TakeArrived();
  void SetPresence(Presence presence);
  const std::vector<int>& wake_fds() const { return wake_fds_; }

  // The memory as each transport knows it. Memory of trncclMemAlloc() is
  // registered when first seen here, other memory until EndCall(), where a
  // transport must know memory at all.
  BufferRegions FindRegions(const std::byte* pointer, size_t bytes);
  void EndCall();

 private:
  struct Registered {
    uint64_t inode;  // of the shared memory: tells it from a later one
    std::unique_ptr<Region> region;
  };
  struct Member {
    std::unique_ptr<Transport> transport;
    Reach reach = Reach::kAnywhere;
    std::unique_ptr<PeerMemory> memory;  // where it reaches that of its peers
    std::vector<Registered> regions;
    std::unique_ptr<Region> everything;  // where any memory may be referred to
    std::vector<std::unique_ptr<Region>> of_call;
  };
  explicit TransportSet(const Options& options)
      : membership_(options.membership), lanes_(options.lanes) {}
  // Finds the transport for a peer and adds the peer to its wishes.
  absl::Status Assign(const ConnectRequest& request, int peer,
                      std::vector<ConnectOptions>* wanted);

  // Takes up a transport that has connected.
  absl::Status Adopt(Member* member, size_t peers);
  // Of the peers whom it reaches.
  void AddMemory(Member* member);
  const Region* FindRegion(Member* member, const std::byte* pointer,
                           size_t bytes);
  const Region* FindShared(Member* member, const std::byte* pointer,
                           size_t bytes);

  Membership membership_;
  int lanes_;
  std::vector<Member> members_;
  std::unique_ptr<Engine> engine_;
  Routes routes_;
  std::string name_;
  size_t slice_bytes_ = 0;
  std::vector<int> wake_fds_;
};

}  // namespace trnccl
