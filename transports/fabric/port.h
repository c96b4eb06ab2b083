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

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/mutex.h"
#include "transports/fabric/buffers.h"
#include "transports/fabric/fabric.h"
#include "transports/fabric/library.h"
#include "transports/fabric/provider.h"
#include "transports/fabric/rail.h"

namespace trnccl::fabric {

// A transport on this port. `from_poll` of another client means that the
// owner's thread may be asleep.
class Client {
 public:
  virtual ~Client() = default;
  // The packet is the client's, who gives it back by Recycle().
  virtual void OnPacket(Receive* packet) = 0;
  // Nothing needs the send's memory any more. Then it's freed.
  virtual void OnSent(const Send& send) = 0;
  virtual void OnSendFailed(const Send& send, const absl::Status& status) = 0;
  // All of it has arrived, or it has failed or been given up.
  virtual void OnLanded(Landing* landing) = 0;
  // The port is of no use any more.
  virtual void OnPortFailed(const absl::Status& status) = 0;
};

// A peer's endpoints: by rail of ours, as many as both have.
struct PeerAddress {
  std::array<fi_addr_t, kMaxRails> rails = {};
  size_t count = 0;
};

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
  absl::StatusOr<Registration> Register(size_t rail,
                                        const Rail::Memory& memory);
  size_t rails() const { return rails_.size(); }

  Buffers& buffers() { return *buffers_; }
  // Sends it, now or as soon as the endpoint takes it.
  void Post(Send* send);
  // Hands the landing's memory to the endpoints. `descriptors` by rail, where
  // memory is the caller's.
  absl::Status Await(Landing* landing,
                     const std::array<void*, kMaxRails>& descriptors);
  // OnLanded() follows, unless the payload is on its way already: then it
  // follows once that has come.
  void GiveUp(Landing* landing);
  void Recycle(Receive* receive);

  // Takes what has arrived and sends what had to wait. `self`: whose thread
  // this is. Whether anything moved.
  bool Poll(const Client* self);
  // The client that polls now, or null.
  const Client* poller() const { return poller_; }
  // Before sleeping on WakeFds(): takes what has arrived; false if it did, or
  // if there's something to poll for. Must be asked again then.
  bool PrepareSleep(const Client* self);

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
  Port(const FabricLibrary& library, Provider provider);
  absl::Status OpenRails();
  absl::Status MakeNapTimer();
  void LogChoice() const;
  absl::Status PostReceives(size_t rail);
  absl::Status PostReceive(size_t rail, Receive* receive);
  // libfabric's return code for posting it.
  ssize_t TryPost(Send* send);
  ssize_t PostPacket(Send* send, fid_ep* endpoint);
  ssize_t PostTagged(Send* send, fid_ep* endpoint);
  ssize_t PostWrite(Send* send, fid_ep* endpoint);
  void Defer(Send* send);
  bool PostDeferred();
  void Finish(Send* send);
  void FailSend(Send* send, const absl::Status& status);
  bool PollRail(size_t rail);
  void Completed(const fi_cq_data_entry& entry);
  void Arrived(Receive* receive, size_t bytes);
  void ArrivedStripe(Landing* landing);
  void Landed(Landing* landing);
  void WrittenStripe(uint64_t number);
  void TakeError(size_t rail);
  Client* Find(uint32_t endpoint) const;

  struct Attached {
    Client* client = nullptr;
    uint32_t generation = 0;
  };

  const FabricLibrary& library_;
  const pid_t owner_pid_;
  Mutex mutex_;
  Provider provider_;
  std::vector<std::unique_ptr<Rail>> rails_;
  std::unique_ptr<Buffers> buffers_;
  std::string address_;
  std::vector<Attached> clients_;
  std::map<std::string, PeerAddress> peers_;
  std::vector<size_t> receives_posted_;  // by rail
  Send* deferred_ = nullptr;             // a queue
  Send** deferred_end_ = &deferred_;
  const Client* poller_ = nullptr;
  absl::Status status_;
  // Wakes sleepers where the queues have no descriptor, or where the provider
  // must be called now and then though nothing arrives.
  int nap_fd_ = -1;
  int64_t nap_ns_ = 0;
};

}  // namespace trnccl::fabric
