// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// One simulated job, all of it drawn from a seed: who the ranks are and how
// they reach each other, what they're to call, and what goes wrong.
//
// Thread rule: plain values and pure functions.
//
//   Scenario scenario = DrawScenario(seed);
//   std::cout << Describe(scenario);
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "algorithms/spec.h"
#include "ccl/base/settings.h"
#include "ccl/base/types.h"
#include "transports/sim/sim.h"

namespace trnccl {

// Draws that don't depend on the standard library's distributions.
class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  // 0 to bound - 1.
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }
  bool Percent(int64_t chance) { return Below(100) < chance; }
  template <typename Value>
  Value Of(const std::vector<Value>& values) {
    return values[static_cast<size_t>(
        Below(static_cast<int64_t>(values.size())))];
  }

 private:
  std::mt19937_64 random_;
};

// Messages of one call: from, to, elements of a byte. Those of kWildTag and
// above are received from any source; each submission has a tag of its own for
// them, so that none takes the message that another one waits for.
struct SimMessage {
  static constexpr int64_t kWildTag = 3;

  bool is_wild() const { return tag >= kWildTag; }

  int from = 0;
  int to = 0;
  int64_t tag = 0;
  int64_t bytes = 0;
  int64_t number = 0;  // of all messages of the script
};
inline constexpr int64_t kMostMessageBytes = 28'000;

// What all ranks are to call together.
struct SimCall {
  enum Kind : uint8_t { kCollective, kMessages };

  Kind kind = kCollective;
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kInt32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int64_t count = 0;
  // Of the v-variants: by rank, or by source * ranks + destination.
  std::vector<int64_t> counts;
  bool in_place = false;
  std::vector<SimMessage> messages;
  // Of all calls of the script, so that each has data of its own.
  int64_t number = 0;
};

// Calls that a rank hands over together: one, or a group.
using SimSubmission = std::vector<SimCall>;

enum class FaultKind : uint8_t {
  kNone,
  kWeather,   // long delays, losses
  kSlow,      // a rank runs rarely
  kPause,     // a rank stops for a while, shorter than any deadline
  kMismatch,  // a rank makes another call
  kRefusal,   // a rank's call is refused, and it makes no more
  kAbort,     // a rank aborts
  kLeave,     // a rank destroys its communicator
  kKill,      // a rank dies
  kStop,      // a rank stops for good
  kCutPair,   // two ranks don't reach each other any more
  kCutRank,   // a rank reaches nobody
};
inline constexpr int kFaultKinds = 12;
std::string_view Name(FaultKind kind);
// Whether calls may fail by it.
inline bool IsFatal(FaultKind kind) { return kind >= FaultKind::kMismatch; }

struct Fault {
  FaultKind kind = FaultKind::kNone;
  int rank = 0;
  int other = 0;  // kCutPair
  // It strikes when the rank has handed over so many submissions, and has been
  // stepped so often since.
  int64_t after_submissions = 0;
  int64_t after_steps = 0;
  int64_t pause_ns = 0;  // kPause
};

struct Scenario {
  uint64_t seed = 0;
  int ranks = 2;
  Grid grid;
  Settings settings;
  uint32_t first_sequence = 1;
  SimWeather weather;
  SimOptions within;  // a node: all but the network
  SimOptions across;
  int window = 1;            // submissions that a rank has under way at most
  int blocking_percent = 0;  // of submissions
  std::vector<SimSubmission> script;  // a barrier of all at the end
  Fault fault;
};

Scenario DrawScenario(uint64_t seed);

// In one line.
std::string Describe(const Scenario& scenario);

}  // namespace trnccl
