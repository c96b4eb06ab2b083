// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/measure.h"

#include <memory>

#include "ccl/base/status_macros.h"

namespace trnccl::cli {

absl::StatusOr<Measured> Measure(Seat& seat, const Effort& effort) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Wire> wire, Wire::Connect(seat));
  Measured measured;
  RETURN_IF_ERROR(MeasureMessages(seat, *wire, effort, &measured));
  RETURN_IF_ERROR(MeasureSegment(seat, *wire, effort, &measured));
  RETURN_IF_ERROR(MeasureSlices(seat, *wire, effort, &measured));
  RETURN_IF_ERROR(MeasurePeerCopy(seat, *wire, effort, &measured));
  return measured;
}

}  // namespace trnccl::cli
