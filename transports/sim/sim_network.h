// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The world that simulated endpoints live in: its time, its weather and its
// disasters, all of them drawn from one seed. Time passes only when somebody
// says so, a little with each Progress() of an endpoint, so that one thread can
// play hours in which a message is late, a rank dies or a cable is cut.
//
// What it may do to a message follows from what wires do: delay it, and so
// reorder links and lanes against each other (one link stays a FIFO); lose it,
// which shows as more delay, since senders resend. What's cut stays cut.
//
// Not here: which rank is stepped when, and so who is slow or stopped; that's
// the test's own.
//
// Thread rule: thread-safe.
//
//   SimNetwork network(seed, {.delay_ns = 5000});
//   network.Pass(1000);
//   network.Kill(3);
//   network.Cut(0, 2);
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ccl/base/mutex.h"
#include "transports/sim/sim_link.h"

namespace trnccl {

struct SimWeather {
  int64_t delay_ns = 0;      // a message, and the news of its release: up to
  int lost_per_1000 = 0;     // messages, each of them sent again
  int64_t resend_ns = 0;     // after so long
  int64_t detection_ns = 0;  // until a peer learns of a death: up to
  int64_t tick_ns = 1000;    // how long a Progress() takes
};

// What peers find of an endpoint; it outlives them.
struct SimEndpoint {
  uint64_t id = 0;
  std::string doorbell;  // "": it never sleeps
  std::atomic<int> rank = -1;
  std::atomic<bool> asleep = false;
};

class SimNetwork {
 public:
  SimNetwork(uint64_t seed, const SimWeather& weather)
      : weather_(weather), random_(seed) {}
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  int64_t now_ns() const { return now_ns_.load(std::memory_order_relaxed); }
  void Pass(int64_t ns) { now_ns_.fetch_add(ns, std::memory_order_relaxed); }
  // The first moment after that one at which anything arrives or is noticed;
  // INT64_MAX if nothing is on its way.
  int64_t NextArrivalNs(int64_t after_ns);

  // The rank's endpoints are gone, as by SIGKILL: what it has sent arrives,
  // where the sender isn't needed any more; peers learn of it by and by.
  void Kill(int rank);
  // Nothing passes between the two any more, in either direction, and nobody is
  // told. `other` of -1: all of the rank's links.
  void Cut(int rank, int other);

  // Those of endpoints (transports/sim/sim.h) alone.

  std::string Add(const std::shared_ptr<SimEndpoint>& endpoint);
  std::shared_ptr<SimEndpoint> Find(const std::string& address);

  struct LinkKey {
    uint64_t from = 0;  // endpoints
    uint64_t to = 0;
    int lane = 0;

    auto operator<=>(const LinkKey&) const = default;
  };
  struct LinkRanks {
    int from = 0;
    int to = 0;
  };
  std::shared_ptr<SimLink> LinkOf(const LinkKey& key, const LinkRanks& ranks,
                                  const SimLinkForm& form);

  // Links are used under the network's lock.
  Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  // A time that a message or some news takes. Needs the lock.
  int64_t DrawDelayNs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How many messages have been sent or released so far.
  int64_t traffic() const { return traffic_.load(std::memory_order_relaxed); }

  // Whether the observer knows by now that the rank has died.
  bool KnowsDeath(int observer, int rank);
  int64_t tick_ns() const { return weather_.tick_ns; }

 private:
  struct Known {
    std::weak_ptr<SimLink> link;
    LinkRanks ranks;
  };
  struct Death {
    int64_t at_ns = 0;
    std::map<int, int64_t> known_ns;  // by observer, once drawn
  };

  const SimWeather weather_;
  std::atomic<int64_t> now_ns_ = 1'000'000'000;
  std::atomic<int64_t> traffic_ = 0;
  std::atomic<bool> any_dead_ = false;
  Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::weak_ptr<SimEndpoint>> endpoints_
      ABSL_GUARDED_BY(mutex_);
  std::map<LinkKey, Known> links_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Death> deaths_ ABSL_GUARDED_BY(mutex_);
  std::vector<LinkRanks> cuts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trnccl
