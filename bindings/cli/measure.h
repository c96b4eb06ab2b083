// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The measurements of a calibration, by the library's own parts: transport,
// folds, executor, the kernel's copies between processes. Each figure is the
// one that algorithms/cost.cc adds up.
//
// Thread rule: both processes of a pair call it together.
//
//   ASSIGN_OR_RETURN(const Measured measured, Measure(seat, {.repeats = 200}));
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bindings/cli/calibration.h"
#include "bindings/cli/pair.h"
#include "bindings/cli/wire.h"

namespace trnccl::cli {

// Of each buffer: beyond a core's own caches, as in the calls whose choice the
// rates decide. A multiple of all kSizes.
inline constexpr size_t kBufferBytes = 4 << 20;

struct Effort {
  int repeats = 200;  // of each measurement
};

// The parts of Measure(), by what they measure.
// Send, half round trip and exchange.
absl::Status MeasureMessages(Seat& seat, Wire& wire, const Effort& effort,
                             Measured* measured);
// Write, copy and fold.
absl::Status MeasureSlices(Seat& seat, Wire& wire, const Effort& effort,
                           Measured* measured);
absl::Status MeasureSegment(Seat& seat, Wire& wire, const Effort& effort,
                            Measured* measured);
absl::Status MeasurePeerCopy(Seat& seat, Wire& wire, const Effort& effort,
                             Measured* measured);

// All of them.
absl::StatusOr<Measured> Measure(Seat& seat, const Effort& effort);

}  // namespace trnccl::cli
