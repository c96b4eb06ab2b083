// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A collective on an engine (transports/engine.h): exchanges the offers, runs
// the engine's part if every rank made one, and holds the barrier after, all
// by messages on lane 0. Where a rank made no offer it ends after the exchange,
// known to all alike, and the message plan goes on.
//
// Thread rule: thread-compatible; owned with its communicator.
//
//   stage.Start(job);
//   while ((advanced = stage.Advance()) != Advanced::kDone) Wait();
//   if (stage.declined()) executor.Start(...);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ccl/base/membership.h"
#include "ccl/executor/executor.h"
#include "ccl/route.h"
#include "transports/engine.h"

namespace trnccl {

class EngineStage {
 public:
  // All ranks of the communicator are reached by one transport.
  EngineStage(const Membership& membership, const Routes& routes,
              Engine* engine);

  struct Job {
    EngineCall call;
    Envelope envelope;
  };
  void Start(const Job& job);

  // kDone once this rank may return, or once the offers are known and not all
  // were made.
  Advanced Advance();
  bool declined() const { return phase_ == Phase::kDeclined; }
  const absl::Status& status() const { return status_; }

  // The call is given up: peers leave this rank's buffers alone, or it says
  // why they don't.
  absl::Status Leave() { return engine_->Leave(); }

  // For error messages: what it waits for, and how far the data has got.
  std::string DescribeWait() const;
  // The ranks that it waits for.
  std::vector<int> WaitsFor() const;

 private:
  enum class Phase : uint8_t {
    kSendOffer,
    kTakeOffers,
    kRun,
    kSendBarrier,
    kTakeBarrier,
    kFinished,
    kDeclined
  };

  bool SendToAll(const void* data, size_t bytes);
  // Takes one message from each peer that hasn't given one yet; true when all
  // have. An offer is kept.
  bool TakeFromAll();
  bool Take(int peer, const Incoming& message);
  Advanced StartRun();
  Advanced AdvanceRun();
  // Says whose error it is and in which call.
  absl::Status InCall(const absl::Status& status) const;
  Advanced Enter(Phase phase);

  Membership membership_;
  const Routes& routes_;
  Engine* engine_;
  std::vector<LinkId> links_;  // of all peers
  Transport* transport_ = nullptr;
  Job job_;
  Phase phase_ = Phase::kFinished;
  std::vector<Offer> offers_;  // by rank
  std::vector<bool> taken_;    // by rank, in this phase
  int missing_ = 0;
  EngineRun* run_ = nullptr;
  absl::Status status_;
};

}  // namespace trnccl
