// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// While a group is made: whether one of its members is gone, as the process's
// other groups know, which learn of that at once. The new one doesn't: whoever
// hasn't come to it is unknown to it.
//
// Ranks are those of the job, as c10d numbers them. A member is gone if its
// process has ended, or if it has left all groups that it shares with this one;
// that it left one of several says nothing.
//
// Thread rule: thread-safe, but for one MemberWatch, which has one owner.
//
//   MemberWatch watch(options->global_ranks_in_group);
//   while (!done) if (auto why = watch.WhyNot(); !why.empty()) throw ...;
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ccl/trnccl.h"

namespace trnccl::torch_binding {

// The process's groups that can be used.
class LivingGroups {
 public:
  static LivingGroups& Get();

  // By the job's ranks; none: they're the group's own.
  void Add(trncclComm_t comm, const std::vector<uint64_t>& ranks);
  // On return, nothing here uses it.
  void Remove(trncclComm_t comm);

  // Of one rank of the job.
  struct Fate {
    trncclRankState_t state = trncclRankPresent;
    std::string text;  // "rank 3 (host a, pid 7): died: ..."
  };
  Fate FateOf(uint64_t rank);
  bool empty();

 private:
  std::mutex mutex_;
  std::map<trncclComm_t, std::vector<uint64_t>> groups_;
};

class MemberWatch {
 public:
  explicit MemberWatch(std::vector<uint64_t> members);

  // Whether there's anything to see.
  bool sees() const { return sees_; }
  // Why the group won't come about, with "origin: rank N"; "" as long as it
  // may. It looks now and then only.
  std::string WhyNot();
  // The same once it hasn't come about, at once.
  std::string WhoIsGone();

 private:
  using Clock = std::chrono::steady_clock;
  struct Gone {
    uint64_t member = 0;
    LivingGroups::Fate fate;
    Clock::time_point since;
  };
  // One that's lost, or else one that has left; of several the first.
  std::optional<Gone> Find();
  static std::string Text(const Gone& gone);

  const std::vector<uint64_t> members_;
  const bool sees_;
  Clock::time_point next_look_;
  // Since when members are gone: those that are done may go before this rank
  // is, which then isn't hindered.
  std::map<uint64_t, Clock::time_point> gone_since_;
};

}  // namespace trnccl::torch_binding
