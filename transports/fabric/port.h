// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A process's way onto the network: its endpoints, the buffers posted to them,
// and who's to be told of what arrives. Knows packets, sends and landings; what
// they mean for links is fabric_transport.h's.
//
// Thread rule: mutex() guards everything but Open() and OfProcess(); clients
// are called under it.
//
//   ASSIGN_OR_RETURN(auto port, Port::OfProcess(options));
//   MutexLock lock(port->mutex());
//   port->Post(send);
//   port->Poll(this);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/mutex.h"
#include "transports/fabric/backoff.h"
#include "transports/fabric/buffers.h"
#include "transports/fabric/fabric.h"
#include "transports/fabric/library.h"
#include "transports/fabric/provider.h"
#include "transports/fabric/rail.h"

namespace trnccl::fabric {

// A transport on this port.
class Client {
 public:
  virtual ~Client() = default;
  // The packet is the client's, who gives it back by Recycle().
  virtual void OnPacket(Receive* packet) = 0;
  // Nothing needs the send's memory any more. Then it's freed.
  virtual void OnSent(const Send& send) = 0;
  virtual void OnSendFailed(const Send& send, const absl::Status& status) = 0;
  // The endpoints have the landing's memory: the peer may be told.
  virtual void OnAwaited(Landing* landing) = 0;
  virtual void OnLandingFailed(const Landing& landing,
                               const absl::Status& status) = 0;
  // All of it has arrived and can be seen, or nothing arrives there any more,
  // since it has failed or been given up.
  virtual void OnLanded(Landing* landing) = 0;
  // The port is of no use any more.
  virtual void OnPortFailed(const absl::Status& status) = 0;
};

// A peer's endpoints.
struct PeerAddress {
  size_t count = 0;  // of rails: as many as both have
  uint32_t id = 0;   // the port's own
};

// Whether a landing's message is certain to come without anything else.
enum class Certainty { kExpected, kAnnounced };

// Enough for a fence: what it reads doesn't matter.
inline constexpr size_t kScratchBytes = 64;

class Port {
 public:
  static absl::StatusOr<std::shared_ptr<Port>> Open(const PortOptions& options);
  // The process's own for these options, made on first use and kept. A forked
  // child makes one anew.
  static absl::StatusOr<std::shared_ptr<Port>> OfProcess(
      const PortOptions& options);
  ~Port();

  Mutex& mutex() { return mutex_; }
  const Provider& provider() const { return provider_; }
  // What peers need, as text: the endpoints' addresses.
  const std::string& address() const { return address_; }
  // Descriptors that become readable when there's something to poll for.
  std::vector<int> WakeFds() const;

  // The number that packets for the client carry.
  uint32_t Attach(Client* client);
  // Nothing is told to it any more. What it has posted goes on.
  void Detach(Client* client);

  absl::StatusOr<PeerAddress> Insert(const std::string& address);
  // The packet is that peer's.
  void Heard(const PeerAddress& peer, const Receive& packet) {
    outlets_[peer.id][packet.posted.rail].heard = true;
  }
  // Whether a payload from that peer can't come by that rail before something
  // was sent there.
  bool AwaitsCall(const PeerAddress& peer, size_t rail) const {
    const Outlet& outlet = outlets_[peer.id][rail];
    return outlet.end == End::kCalling && !outlet.called;
  }
  // By rail.
  absl::StatusOr<std::vector<Registration>> Register(const MemoryRange& memory);
  size_t rails() const { return rails_.size(); }

  Buffers& buffers() { return *buffers_; }
  // Sends it, now or as soon as the endpoint takes it.
  void Post(Send* send);
  // Fails what the client has posted from its caller's memory and no endpoint
  // has taken yet.
  void DropReferences(uint32_t endpoint);
  // Hands the landing's memory to the endpoints; OnAwaited() follows, or may
  // have come before this returns. False, and nothing follows, where there's no
  // room for what isn't certain to come: try again later.
  bool Await(Landing* landing, Certainty certainty);
  // OnLanded() follows, unless the payload is on its way already: then it
  // follows once that has come.
  void GiveUp(Landing* landing);
  // For a landing that was given up, in place of freeing it: takes what the
  // peer may be sending there all the same. On TCP nothing gets past a message
  // that nobody takes, whosever it is.
  void Absorb(Landing* landing, size_t slice_bytes);
  void Recycle(Receive* receive);

  // Takes what has arrived and sends what had to wait. `self`: whose thread
  // this is. Whether anything moved.
  bool Poll(const Client* self);
  // The client that polls now, or null.
  const Client* poller() const { return poller_; }
  // Before sleeping on WakeFds(): takes what has arrived; false if it did, or
  // if there's something to poll for. Must be asked again then.
  bool PrepareSleep(const Client* self);

  // False once nothing can be sent or received any more: the port is broken, or
  // this is a forked child, whose parent goes on with it.
  bool usable();
  // Ends the endpoints: nothing is sent or received any more. For when memory
  // that's no longer ours to use can't be taken back from them otherwise.
  void Break(const absl::Status& status);

  // The offset and length of a stripe of a payload of so many bytes.
  struct Stripe {
    size_t offset = 0;
    size_t bytes = 0;
  };
  static Stripe StripeOf(size_t bytes, size_t stripes, size_t index);

 private:
  // What a rail's endpoint may hold, and does.
  struct Room {
    size_t landings = 0;  // stripes that wait for tagged payloads, at most
    size_t transmits = 0;
    std::array<size_t, 2> lacking = {};  // buffers for packets, by end
    size_t landings_posted = 0;
    size_t transmits_posted = 0;

    size_t& LackingAt(End end) { return lacking[static_cast<size_t>(end)]; }
    bool LacksReceives() const { return lacking[0] + lacking[1] > 0; }
  };

  // The way to a peer by one rail. Where connections may cross, one of both
  // peers calls, and the other answers over the same connection. Until it has
  // been called, it may call, too: what's short comes by either way, payloads
  // only by the first.
  struct Outlet {
    fi_addr_t taking = FI_ADDR_UNSPEC;  // its endpoint that takes calls
    // The one that calls, if the two endpoints differ and it's for this port to
    // answer there.
    fi_addr_t calling = FI_ADDR_UNSPEC;
    // The end of ours that they talk with.
    End end = End::kTaking;
    bool heard = false;   // the peer has called
    bool called = false;  // something was sent
    uint32_t held = 0;    // sends that the endpoint has
    Backoff backoff;
  };
  // From where something is sent, and where to.
  struct Hop {
    fid_ep* from = nullptr;
    fi_addr_t to = FI_ADDR_UNSPEC;
  };

  Port(const FabricLibrary& library, Provider provider);
  static absl::StatusOr<std::shared_ptr<Port>> OpenWith(
      const FabricLibrary& library, const PortOptions& options);
  absl::Status OpenRails();
  absl::Status MakeNapTimer();
  // Adds the way to a peer; the words that name its endpoints, by rail.
  enum class Role { kCalls, kAnswers, kTalksToItself };
  absl::Status AddOutlets(std::span<const std::string> words, Role role);
  void LogChoice() const;
  bool IsInherited() const;
  void Abandon();
  uint64_t Access() const;

  // Posting (posting.cc).
  // Buffers for packets that the endpoint of `posted` should have and hasn't.
  size_t& LackingAt(const Posted& posted) {
    return rooms_[posted.rail].LackingAt(posted.end);
  }
  absl::Status PostReceives(size_t rail);
  absl::Status PostReceive(Receive* receive);
  Outlet& OutletOf(const Send& send) {
    return outlets_[send.peer_id][send.posted.rail];
  }
  bool MayPost(const Send& send);
  // libfabric's return code for posting it.
  ssize_t TryPost(Send* send);
  ssize_t PostPacket(Send* send, const Hop& hop);
  ssize_t PostTagged(Send* send, const Hop& hop);
  ssize_t PostWrite(Send* send, const Hop& hop);
  void Defer(Send* send);
  bool PostDeferred();
  // It's the endpoint's no more.
  void TakeBack(const Send& send);
  void Finish(Send* send);
  void FailSend(Send* send, const absl::Status& status);

  // Landings (landing.cc).
  bool HasRoomFor(const Landing& landing) const;
  // False: some stripes are still to be handed over.
  bool HandOver(Landing* landing);
  ssize_t HandOverStripe(Landing* landing, size_t stripe);
  ssize_t PostTaggedReceive(Landing* landing, size_t stripe);
  ssize_t PostFence(Landing* landing, size_t stripe);
  void DeferLanding(Landing* landing);
  bool HandOverDeferred();
  void FailLanding(Landing* landing, const absl::Status& status);
  void ArrivedStripe(Landing* landing);
  void Landed(Landing* landing);
  void WrittenStripe(uint64_t number);

  // Polling (polling.cc).
  bool PollRail(size_t rail);
  void Completed(const fi_cq_data_entry& entry);
  void CompletedLanding(const fi_cq_data_entry& entry);
  void Arrived(Receive* receive, size_t bytes);
  bool TakeError(size_t rail);
  void TakeReceiveError(const fi_cq_err_entry& error, const std::string& said);
  void TakeSendError(const fi_cq_err_entry& error, const std::string& said);
  void TakeLandingError(const fi_cq_err_entry& error, const std::string& said);
  Client* Find(uint32_t endpoint) const;

  struct Attached {
    Client* client = nullptr;
    uint32_t generation = 0;
  };

  const FabricLibrary& library_;
  const uint32_t generation_;  // of processes: how often one forked
  Mutex mutex_;
  Provider provider_;
  std::vector<std::unique_ptr<Rail>> rails_;
  std::unique_ptr<Buffers> buffers_;
  std::string address_;
  std::vector<Attached> clients_;
  std::map<std::string, PeerAddress> peers_;
  std::vector<Room> rooms_;  // by rail
  // By peer and rail.
  std::vector<std::array<Outlet, kMaxRails>> outlets_;
  Send* deferred_ = nullptr;  // a queue
  Send** deferred_end_ = &deferred_;
  Landing* deferred_landings_ = nullptr;
  const Slab* scratch_ = nullptr;  // where fences read to
  const Client* poller_ = nullptr;
  absl::Status status_;
  // Wakes sleepers where the queues have no descriptor, where the provider must
  // be called now and then though nothing arrives, and where it refused a post.
  int nap_fd_ = -1;
  int64_t nap_ns_ = 0;
  bool naps_ = false;  // the timer is set
};

}  // namespace trnccl::fabric
