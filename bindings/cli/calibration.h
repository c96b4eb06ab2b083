// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// From what was measured to the constants of the cost model
// (algorithms/cost.h), and to the text of a tuning file. Not here: measuring.
//
// Thread rule: plain values and pure functions.
//
//   LinkModel model = ModelOf(measured);
//   std::string text = TuningText(models, "# host, date");
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "algorithms/cost.h"

namespace trnccl::cli {

// The lengths of the messages and copies that are timed.
inline constexpr std::array<size_t, 6> kSizes = {4 << 10,  8 << 10,  16 << 10,
                                                 32 << 10, 64 << 10, 128 << 10};
// Seconds by size.
using Curve = std::array<double, kSizes.size()>;

// What one process saw in one round, medians, in seconds.
struct Measured {
  double send = 0;             // a short message, one of several in a row
  double half_round_trip = 0;  // of a short message, from one to the other
  double exchange = 0;         // of short messages, by calls of the transport
  double segment = 0;          // the same by the executor, in two steps
  Curve write = {};            // into a slice that the peer has read, and sent
  Curve copy = {};             // out of a slice that the peer has written
  Curve fold = {};       // of such a slice and one's own, to a third place
  Curve peer_copy = {};  // by the kernel; zero where it refuses
};

// The median; of an even number, the mean of the two in the middle. At least
// one value.
double Median(std::span<const double> values);

// y = constant + rate * x, neither below zero, with the least squares of
// relative errors, since the values span orders of magnitude.
struct Line {
  double constant = 0;
  double rate = 0;
};
Line FitLine(const Curve& seconds);

// What isn't measured stays the default's.
LinkModel ModelOf(const Measured& measured);

// What ParseModel() takes: the median of each constant over the models, below a
// comment of what it is and how far the models differ. `head` is a comment.
std::string TuningText(std::span<const LinkModel> models,
                       const std::string& head);

}  // namespace trnccl::cli
