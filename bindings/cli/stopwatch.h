// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Seconds since it was made, less what reading the clock takes.
//
// Thread rule: a plain value.
//
//   const Stopwatch watch;
//   Work();
//   const double seconds = watch.seconds();
#pragma once

#include <algorithm>
#include <cstdint>

#include "ccl/base/clock.h"

namespace trnccl::cli {

class Stopwatch {
 public:
  Stopwatch() : reading_ns_(ReadingNs()), start_ns_(NowNs()) {}

  double seconds() const {
    return 1e-9 * static_cast<double>(
                      std::max<int64_t>(1, NowNs() - start_ns_ - reading_ns_));
  }

 private:
  // The least of some, so that no interruption counts.
  static int64_t ReadingNs() {
    int64_t least_ns = INT64_MAX;
    for (int i = 0; i < 3; ++i) {
      const int64_t start_ns = NowNs();
      least_ns = std::min(least_ns, NowNs() - start_ns);
    }
    return least_ns;
  }

  int64_t reading_ns_;
  int64_t start_ns_;
};

}  // namespace trnccl::cli
