// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// When to offer again what an endpoint refused for a peer to which nothing is
// on its way: one that isn't connected yet, or whose process has died. Some
// providers make a new connection at each try, and never say that there's
// nobody.
//
// Tries come an eighth of the time so far apart: that's the most by which they
// delay a peer that can be reached; and of one that can't, there are some
// hundred, and then few a second.
//
// Thread rule: a plain value.
//
//   if (backoff.Allows(NowNs()) && !TryPost(send)) backoff.Refused(NowNs());
#pragma once

#include <algorithm>
#include <cstdint>

namespace trnccl::fabric {

class Backoff {
 public:
  static constexpr int64_t kLongestNs = 50'000'000;

  bool Allows(int64_t now_ns) const { return now_ns >= again_ns_; }

  void Refused(int64_t now_ns) {
    if (!waits_) since_ns_ = now_ns;
    waits_ = true;
    again_ns_ = now_ns + std::min((now_ns - since_ns_) / 8, kLongestNs);
  }

  void Taken() { *this = {}; }

  // For how long nothing has been taken; 0 if the last offer was.
  int64_t RefusedForNs(int64_t now_ns) const {
    return waits_ ? now_ns - since_ns_ : 0;
  }

 private:
  bool waits_ = false;
  int64_t since_ns_ = 0;  // the first refusal since something was taken
  int64_t again_ns_ = INT64_MIN;
};

}  // namespace trnccl::fabric
