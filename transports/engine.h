// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A collective engine does a whole collective among the ranks of one node:
// Trainium's own, its stand-in, or (transports/shm) all ranks directly on
// memory that each has mapped. It sends no messages of its own: the executor
// exchanges the offers before and holds the barrier after.
//
// In a call that the engine accepts, by what all ranks know alike, every rank
// makes an offer for its buffers; the executor exchanges them. If every rank
// offered, all know it alike, and the collective runs on the engine; otherwise
// the message plan goes on. The offers' exchange is a barrier too: once a rank
// has all of them, all ranks are in the call. After Advance() says done, this
// rank's part is done, and a barrier must follow before any rank returns.
//
// Thread rule: thread-compatible, owned with its communicator.
//
//   if (engine.Accepts(call)) {
//     Offer mine = engine.MakeOffer(call);
//     ... exchange ...
//     ASSIGN_OR_RETURN(auto run, engine.Start(call, offers));
//     do { ASSIGN_OR_RETURN(done, run->Advance()); } while (!done);
//     ... barrier ...
//   }
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/types.h"

namespace trnccl {

// Folds raw inputs, in the order given, into every result, and finishes them.
class EngineFold {
 public:
  virtual ~EngineFold() = default;
  virtual void Fold(std::span<const std::byte* const> inputs,
                    std::span<std::byte* const> results,
                    size_t count) const = 0;
};

struct EngineCall {
  Collective collective = Collective::kAllReduce;
  size_t element_bytes = 1;
  // Elements of each block (algorithms/spec.h), alike on all ranks.
  int64_t count = 0;
  int root = 0;
  const std::byte* input = nullptr;  // null where this rank has none
  std::byte* output = nullptr;
  const EngineFold* fold = nullptr;  // reducing collectives
  // By what all ranks know alike: whether memory that peers haven't mapped is
  // better reached through the kernel than left to messages.
  bool unmapped_pays = false;
};

// What one rank's peers need in order to reach its buffers; fits an inline
// message. `made` is false where a buffer can't be reached.
struct Offer {
  bool made = false;
  std::array<std::byte, 95> bytes = {};
};

class EngineRun {
 public:
  virtual ~EngineRun() = default;
  // Does a bounded piece of this rank's part; true when it's all done.
  virtual absl::StatusOr<bool> Advance() = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  // By what all ranks know alike: collective, sizes, ranks.
  virtual bool Accepts(const EngineCall& call) const = 0;

  virtual Offer MakeOffer(const EngineCall& call) = 0;

  // `offers` by rank of the engine's group. Null, on all ranks alike, where
  // they don't suffice. The run is the engine's own and lives until the next
  // Start().
  virtual absl::StatusOr<EngineRun*> Start(const EngineCall& call,
                                           std::span<const Offer> offers) = 0;

  // This rank gives up the call that it made an offer for, and all later ones:
  // peers touch its buffers no more. Waits for a peer that's at it, but not for
  // one that doesn't end; says so then.
  virtual absl::Status Leave() = 0;
};

}  // namespace trnccl
