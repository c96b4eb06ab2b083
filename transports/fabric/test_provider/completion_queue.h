// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Completion queues: bounded, in any format, with a descriptor to poll(2). Who
// reads one moves the endpoints that are bound to it; nothing else does, but
// posts.
//
// Thread rule: under ProviderMutex() (fork_guard.h).
//
//   if (cq.HasRoom()) cq.Push({.context = context, .flags = FI_SEND | FI_MSG});
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "transports/fabric/test_provider/fabric.h"
#include "transports/fabric/test_provider/wire.h"

namespace trnccl::manners {

struct Completion {
  void* context = nullptr;
  uint64_t flags = 0;
  size_t bytes = 0;
  uint64_t data = 0;
  uint64_t tag = 0;
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  int error = 0;  // positive, or 0
  Outcome outcome = Outcome::kOk;
  size_t excess_bytes = 0;  // of a truncated message
  uint64_t visible_at = 0;  // in reads of the queue
};

// What a queue's reader moves.
class Progressor {
 public:
  virtual ~Progressor() = default;
  virtual void Progress() = 0;
  // Whether another Progress() may move something without anything arriving.
  virtual bool HasWork() const = 0;
  // Readable when something arrives.
  virtual int wake_fd() const = 0;
};

struct CompletionQueue : fid_cq {
  Domain* domain = nullptr;
  fi_cq_format format = FI_CQ_FORMAT_CONTEXT;
  size_t capacity = 0;
  int epoll = -1;   // with FI_WAIT_FD
  int signal = -1;  // an eventfd in it: readable while there's work
  bool signalled = false;
  uint64_t reads = 0;
  int endpoints = 0;  // bound to it
  // A post was refused since the last read: who'd sleep is to try again, for
  // there may be nothing outstanding that would wake him.
  bool refused = false;
  std::vector<Progressor*> sources;
  std::deque<Completion> completions;

  bool HasRoom() const { return completions.size() < capacity; }
  // A success may be turned into an error by MANNERS_FAIL.
  void Push(Completion completion);
  void Bind(Progressor* source);
  void Unbind(Progressor* source);
  bool HasWork() const;
  void UpdateSignal();
  void Progress();
};

int OpenCompletionQueue(Domain& domain, const fi_cq_attr& attr, fid_cq** cq,
                        void* context);

}  // namespace trnccl::manners
