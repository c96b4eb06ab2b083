// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Endpoints: what was posted, what has arrived, and how the two meet. Arrivals
// are held for a few progress calls and delivered in an order drawn by the
// seed, wherever the endpoint's message order leaves the choice.
//
// Thread rule: under ProviderMutex() (fork_guard.h). Progress() may complete
// anything; nothing happens between calls.
//
//   endpoint.Transmit({.kind = Kind::kMessage, .buffers = iov, ...});
//   endpoint.Progress();
#pragma once

#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "transports/fabric/test_provider/address_vector.h"
#include "transports/fabric/test_provider/completion_queue.h"
#include "transports/fabric/test_provider/fabric.h"
#include "transports/fabric/test_provider/links.h"
#include "transports/fabric/test_provider/region.h"

namespace trnccl::manners {

// Any call that sends, receives, reads or writes. Tags and directed receives
// are for messages, `remote` for kRead and kWrite.
struct Post {
  const char* call = "";
  Kind kind = Kind::kMessage;
  std::span<const iovec> buffers;
  void* const* descriptors = nullptr;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  void* context = nullptr;
  uint64_t flags = 0;
  bool quiet = false;  // fi_inject and its like: completes silently
  uint64_t data = 0;
  uint64_t tag = 0;
  uint64_t ignore = 0;
  std::span<const fi_rma_iov> remote;
};

struct Operation {
  Kind kind;
  Address peer;
  void* context;
  uint64_t flags;  // of the completion; 0: none but for errors
  std::vector<Segment> segments;
  uint64_t checksum;
};

struct PostedReceive {
  Kind kind;
  void* context;
  bool silent;
  std::vector<Segment> segments;
  uint64_t tag;
  uint64_t ignore;
  fi_addr_t source;
};

struct Endpoint : fid_ep, Progressor {
  Domain* domain = nullptr;
  uint64_t caps = 0;
  bool ordered = false;  // FI_ORDER_SAS
  uint64_t tx_flags = 0;
  uint64_t rx_flags = 0;
  bool selective_tx = false;
  bool selective_rx = false;
  bool enabled = false;
  AddressVector* av = nullptr;
  CompletionQueue* tx_cq = nullptr;
  CompletionQueue* rx_cq = nullptr;
  Address address;
  Links links;

  uint64_t last_operation = 0;
  std::map<uint64_t, Operation> outstanding;
  std::deque<PostedReceive> receives;
  bool receive_posted = false;       // since unready messages were looked at
  std::vector<Arrival> pool;         // arrived, and not delivered yet
  std::vector<Arrival> unready;      // messages that wait for a receive
  std::map<Address, uint64_t> sent;  // messages to each peer
  std::map<Address, uint64_t> delivered;  // messages from each peer
  std::set<Address> dead;
  std::set<Address> silenced;  // dead by MANNERS_FAIL: arrivals are dropped

  // life: endpoint.cc
  int Bind(fid_t object, uint64_t flags);
  int Enable();
  int Close();
  ssize_t Cancel(void* context);

  // posts: transmit.cc
  ssize_t Transmit(const Post& post);
  ssize_t PostReceive(const Post& post);
  void Complete(uint64_t id, Outcome outcome, const Bytes& payload);

  // arrivals: delivery.cc
  void Progress() override;
  bool HasWork() const override;
  int wake_fd() const override { return links.fd(); }
  // All that's outstanding to the peer will fail.
  void FailPeer(const Address& peer, Outcome outcome);

 private:
  std::vector<Segment> LocalSegments(const Post& post, uint64_t access);
  void CheckPost(const Post& post) const;
  void CheckTransmit(const Post& post) const;
  bool Refused(CompletionQueue& cq);
  void Launch(const Post& post, const Address& peer, uint64_t id);

  void Collect();
  void DeliverPool();
  bool Deliver(Arrival& arrival);
  bool DeliverMessage(Arrival& arrival);
  bool DeliverWrite(Arrival& arrival);
  void Tear(Region& region, Arrival& arrival);
  void DeliverRead(Arrival& arrival);
  void MatchUnready();
  bool Match(Arrival& arrival);
  void Finish(const PostedReceive& receive, const Arrival& arrival);
  void Reply(const Arrival& to, Outcome outcome, const Bytes& payload = {});
};

// The tables of operations.cc.
extern fi_ops_msg kMessageCalls;
extern fi_ops_tagged kTaggedCalls;
extern fi_ops_rma kRmaCalls;

int OpenEndpoint(Domain& domain, const fi_info& info, fid_ep** endpoint,
                 void* context);

}  // namespace trnccl::manners
