// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A rank that sends numbered messages on every link and checks those that come:
// their bytes, envelopes and order. What a message holds follows from its link
// and number, so that one astray is noticed whatever happened to it.
//
// Thread rule: thread-compatible; each player is one rank's.
//
//   Player player(subject, transport, {.rank = 0, .ranks = 2, .messages =
//   100}); while (!player.done()) ASSERT_EQ(player.Step(random()), "");
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transports/conformance/team.h"
#include "transports/transport.h"

namespace trnccl {

// One direction between two ranks on one lane, as test data.
struct Stream {
  int from = 0;
  int to = 0;
  int lane = 0;

  uint64_t Key(uint64_t number) const;
  // Of the interesting sizes, one.
  size_t Bytes(uint64_t number, const Traits& traits) const;
  Envelope EnvelopeOf(uint64_t number) const;
  void Fill(uint64_t number, std::byte* data, size_t bytes) const;
  // "" or what's wrong.
  std::string Check(uint64_t number, const Incoming& message,
                    const Traits& traits) const;
};

class Player {
 public:
  struct Options {
    int rank = 0;
    int ranks = 2;
    int lanes = 1;
    uint64_t messages = 100;  // on each link
  };
  Player(const Subject& subject, Transport& transport, const Options& options);

  // One act, chosen by the random number. "" or what went wrong.
  std::string Step(uint64_t random);
  // Everything sent has been released, everything expected has come.
  bool done() const { return done_ == 2 * links_.size(); }
  // Whether the last step did anything.
  bool moved() const { return moved_; }

 private:
  struct Link {
    LinkId id;
    Stream out;
    Stream in;
    uint64_t sent = 0;
    uint64_t received = 0;
    bool drained = false;
    std::unique_ptr<SubjectMemory> memory;
    std::unique_ptr<Region> region;
  };

  void Send(Link& link);
  void Drain(Link& link);
  std::string Receive(Link& link);

  Transport& transport_;
  const Options options_;
  std::vector<Link> links_;
  size_t done_ = 0;
  bool moved_ = false;
};

}  // namespace trnccl
