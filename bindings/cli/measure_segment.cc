// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <vector>

#include "algorithms/catalog.h"
#include "bindings/cli/measure.h"
#include "bindings/cli/stopwatch.h"
#include "ccl/base/check.h"
#include "ccl/base/status_macros.h"
#include "ccl/executor/executor.h"

namespace trnccl::cli {
namespace {

// Of a call, one after the other, so that starting it weighs little.
constexpr int64_t kSegments = 200;

// A call whose every segment is a step that sends an element and a step that
// folds what came.
class TinySegments {
 public:
  TinySegments(const Shape& shape, Transport* transport, const Folder* folder)
      : shape_(shape),
        input_(kSegments, 1.5f),
        output_(kSegments),
        routes_(RoutesBy(transport, shape)),
        executor_(shape, routes_) {
    const Algorithm* one_step =
        FindAlgorithm(Collective::kAllReduce, "one_step");
    TRNCCL_CHECK(one_step != nullptr);
    program_ = Compile(*one_step, shape, routes_);
    TRNCCL_CHECK(program_.steps.size() == 2);
    job_.call = {.input = reinterpret_cast<const std::byte*>(input_.data()),
                 .output = reinterpret_cast<std::byte*>(output_.data()),
                 .input_counts = BlockCounts::Even(kSegments),
                 .output_counts = BlockCounts::Even(kSegments)};
    plan_ = MakePlan(program_, job_.call, shape,
                     {.segment_count = 1, .segments = kSegments, .slots = 1});
    job_.plan = &plan_;
    job_.folder = folder;
  }

  // Seconds of a segment.
  absl::StatusOr<double> Time(const Seat& seat) {
    const Stopwatch watch;
    RETURN_IF_ERROR(executor_.Start(job_));
    Advanced advanced = Advanced::kNothing;
    RETURN_IF_ERROR(seat.Await([&] {
      advanced = executor_.Advance();
      return advanced == Advanced::kDone || advanced == Advanced::kFailed;
    }));
    RETURN_IF_ERROR(executor_.status());
    return watch.seconds() / static_cast<double>(kSegments);
  }

 private:
  static Routes RoutesBy(Transport* transport, const Shape& shape) {
    Routes routes(static_cast<size_t>(shape.ranks));
    routes[static_cast<size_t>(1 - shape.rank)].transport = transport;
    return routes;
  }

  const Shape shape_;
  std::vector<float> input_;
  std::vector<float> output_;
  const Routes routes_;
  CompiledProgram program_;
  Plan plan_;
  Executor::Job job_;
  Executor executor_;
};

}  // namespace

absl::Status MeasureSegment(Seat& seat, Wire& wire, const Effort& effort,
                            Measured* measured) {
  ASSIGN_OR_RETURN(const Folder folder,
                   MakeFolder({DataType::kFloat32, ReduceOp::kSum}));
  TinySegments segments({.ranks = 2, .rank = seat.rank()}, &wire.transport(),
                        &folder);
  std::vector<double> seconds;
  for (int i = 0; i < effort.repeats; ++i) {
    RETURN_IF_ERROR(seat.Meet());
    ASSIGN_OR_RETURN(seconds.emplace_back(), segments.Time(seat));
  }
  measured->segment = Median(seconds);
  return absl::OkStatus();
}

}  // namespace trnccl::cli
