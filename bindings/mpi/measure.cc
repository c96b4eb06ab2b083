// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "bindings/mpi/library.h"
#include "bindings/mpi/mpi_side.h"
#include "ccl/base/status_macros.h"

namespace trnccl::perf {
namespace {

constexpr uint64_t kTimingSeed = 1;
constexpr int kLimitRepetitions = 5;
constexpr double kMicroseconds = 1e6;

Spread SpreadOf(const std::vector<double>& values) {
  const auto [min, max] = std::ranges::minmax(values);
  return {Median(values), min, max};
}

}  // namespace

Measurement::Measurement(const Session& session, const RowRequest& request)
    : session_(session),
      request_(request),
      shape_(session.collective.Plan(
          {request.elements, session.rank, session.ranks, request.root})),
      requests_(
          static_cast<size_t>(session.options.aggregated_calls *
                              session.collective.traits().requests_per_call)) {}

size_t Measurement::row_bytes() const {
  return shape_.row_elements * RowOf(request_.kind.type).bytes;
}

absl::StatusOr<Result> Measurement::Take(Place place) {
  const Recipe recipe = {request_.kind.type, request_.kind.op, session_.ranks,
                         kTimingSeed};
  RowMemory memory(
      session_.buffers, shape_,
      {recipe, session_.rank, place, session_.options.unaligned_elements});
  Result result;
  RETURN_IF_ERROR(TimeCalls(memory, result));
  trncclCommInfo_t info = {};
  RETURN_IF_ERROR(FromLibrary(trncclCommInfo(session_.comm, &info),
                              {"CommInfo", session_.comm}));
  result.algorithm = info.last_algorithm;
  if (session_.options.compare_mpi) RETURN_IF_ERROR(TimeLimit(memory, result));
  RETURN_IF_ERROR(Check(memory, result));
  return result;
}

// ---- Calls -----------------------------------------------------------------

Arguments Measurement::ArgumentsOf(const RowMemory& memory) const {
  return {memory.send(), memory.recv(), shape_.count, request_.kind.type,
          request_.op,   request_.root, session_.comm};
}

absl::Status Measurement::CallIteration(const Arguments& arguments) {
  const int64_t calls = session_.options.aggregated_calls;
  switch (session_.options.mode) {
    case CallMode::kBlocking:
    case CallMode::kSynchronised:
      return MakeCalls(arguments, calls, nullptr);
    case CallMode::kAsynchronous:
      RETURN_IF_ERROR(MakeCalls(arguments, calls, requests_.data()));
      return WaitForAll(calls);
    case CallMode::kWaited:
      for (int64_t i = 0; i < calls; ++i) RETURN_IF_ERROR(CallOnce(arguments));
      return absl::OkStatus();
  }
  return absl::InternalError("unknown mode of calls");
}

absl::Status Measurement::CallOnce(const Arguments& arguments) {
  const CallMode mode = session_.options.mode;
  if (mode == CallMode::kBlocking || mode == CallMode::kSynchronised)
    return MakeCalls(arguments, 1, nullptr);
  RETURN_IF_ERROR(MakeCalls(arguments, 1, requests_.data()));
  return WaitForAll(1);
}

absl::Status Measurement::MakeCalls(const Arguments& arguments, int64_t calls,
                                    trncclRequest_t* requests) {
  const Traits& traits = session_.collective.traits();
  const auto call = [&](trncclRequest_t* own) {
    return FromLibrary(session_.collective.Call(arguments, own),
                       {traits.call, arguments.comm});
  };
  if (calls == 1) return call(requests);
  RETURN_IF_ERROR(FromLibrary(trncclGroupStart(), {"GroupStart"}));
  for (int64_t i = 0; i < calls; ++i) {
    trncclRequest_t* own = nullptr;
    if (requests != nullptr) own = requests + i * traits.requests_per_call;
    RETURN_IF_ERROR(call(own));
  }
  return FromLibrary(trncclGroupEnd(), {"GroupEnd", arguments.comm});
}

absl::Status Measurement::WaitForAll(int64_t calls) {
  const int64_t requests =
      calls * session_.collective.traits().requests_per_call;
  for (int64_t i = 0; i < requests; ++i) {
    const trncclRequest_t request = requests_[static_cast<size_t>(i)];
    RETURN_IF_ERROR(FromLibrary(trncclRequestWait(request, TRNCCL_WAIT_FOREVER),
                                {"RequestWait", session_.comm}));
    RETURN_IF_ERROR(FromLibrary(trncclRequestFree(request),
                                {"RequestFree", session_.comm}));
  }
  return absl::OkStatus();
}

// ---- Time ------------------------------------------------------------------

Timing Measurement::TimingOfCalls() const {
  const Options& options = session_.options;
  Timing timing;
  timing.iterations = options.iterations;
  timing.warmup_iterations = options.warmup_iterations;
  timing.meet = options.fresh || options.mode == CallMode::kSynchronised;
  timing.each_alone = timing.meet || options.report_iterations;
  timing.cpu_time = options.report_cpu_time;
  return timing;
}

absl::Status Measurement::TimeCalls(RowMemory& memory, Result& result) {
  const Options& options = session_.options;
  memory.FillForTime();
  const Arguments arguments = ArgumentsOf(memory);
  Timed timed;
  timed.refill = [&memory] { memory.RefillForTime(); };
  if (options.fresh)
    timed.before_iteration = [&memory](int64_t i) { memory.RewriteInput(i); };
  timed.call = [&] { return CallIteration(arguments); };
  Stopwatch ours(session_.team, TimingOfCalls(), timed);
  const MpiArguments mpi_arguments = MpiArgumentsOf(memory);
  timed.call = [&] {
    for (int64_t i = 0; i < options.aggregated_calls; ++i)
      session_.collective.CallMpi(mpi_arguments);
    return absl::OkStatus();
  };
  Stopwatch theirs(session_.team, TimingOfCalls(), timed);

  const bool compare = IsCompared();
  RETURN_IF_ERROR(ours.WarmUp());
  if (compare) RETURN_IF_ERROR(theirs.WarmUp());
  const bool once = options.iterations != 0 && !options.compare_mpi;
  for (int i = 0; i < (once ? 1 : kRepetitions); ++i) {
    RETURN_IF_ERROR(ours.Repeat());
    if (compare) RETURN_IF_ERROR(theirs.Repeat());
  }
  Summarise(ours, result);
  if (compare) SummariseComparison(ours, theirs, result);
  return SummariseEach(ours, result);
}

bool Measurement::IsCompared() const {
  return session_.options.compare_mpi && IsComparable(request_.kind) &&
         shape_.row_elements <=
             static_cast<size_t>(std::numeric_limits<int>::max());
}

MpiArguments Measurement::MpiArgumentsOf(const RowMemory& memory) const {
  return {memory.send(),
          memory.recv(),
          memory.in_place(),
          static_cast<int>(shape_.count),
          MpiType(request_.kind.type),
          MpiOperator(request_.kind),
          request_.root,
          session_.rank,
          session_.mpi_comm};
}

absl::Status Measurement::TimeLimit(const RowMemory& memory, Result& result) {
  if (!session_.collective.traits().moves_data) return absl::OkStatus();
  const LocalWorkCall work = memory.local_work();
  Timed timed;
  timed.refill = [] {};
  timed.call = [&] {
    DoLocalWork(work);
    return absl::OkStatus();
  };
  result.limit_us = 0;
  if (work.work.outputs == 0 || work.work.elements == 0)
    return absl::OkStatus();
  Stopwatch stopwatch(session_.team, Timing(), timed);
  RETURN_IF_ERROR(stopwatch.WarmUp());
  std::vector<double> slowest_us;
  for (int i = 0; i < kLimitRepetitions; ++i) {
    RETURN_IF_ERROR(stopwatch.Repeat());
    slowest_us.push_back(stopwatch.repetitions().back().slowest() *
                         kMicroseconds);
  }
  result.limit_us = Median(slowest_us);
  return absl::OkStatus();
}

double Measurement::AverageOf(
    const std::vector<double>& seconds_by_rank) const {
  switch (session_.options.average) {
    case Average::kRank0:
      return seconds_by_rank[0];
    case Average::kMean:
      return std::accumulate(seconds_by_rank.begin(), seconds_by_rank.end(),
                             0.0) /
             static_cast<double>(seconds_by_rank.size());
    case Average::kMin:
      return std::ranges::min(seconds_by_rank);
    case Average::kMax:
      return std::ranges::max(seconds_by_rank);
  }
  return 0;
}

std::vector<double> Measurement::TimesUs(const Stopwatch& stopwatch) const {
  const double calls = static_cast<double>(session_.options.aggregated_calls);
  std::vector<double> times;
  for (const Repetition& repetition : stopwatch.repetitions())
    times.push_back(AverageOf(repetition.seconds) * kMicroseconds / calls);
  return times;
}

void Measurement::Summarise(const Stopwatch& ours, Result& result) const {
  result.time_us = SpreadOf(TimesUs(ours));
  result.iterations = ours.iterations();
  result.repetitions = static_cast<int>(ours.repetitions().size());
  if (result.time_us.median > 0)
    result.algbw_gbps =
        static_cast<double>(row_bytes()) / result.time_us.median * 1e-3;
  result.busbw_gbps = result.algbw_gbps * shape_.bus_factor;
}

void Measurement::SummariseComparison(const Stopwatch& ours,
                                      const Stopwatch& theirs,
                                      Result& result) const {
  result.mpi_time_us = Median(TimesUs(theirs));
  // Where nothing is to move MPI returns at once, while we compare the calls.
  if (session_.collective.traits().moves_data && row_bytes() == 0) return;
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.repetitions().size(); ++i)
    ratios.push_back(ours.repetitions()[i].slowest() /
                     theirs.repetitions()[i].slowest());
  result.ratio = SpreadOf(ratios);
}

// Of the last repetition, each iteration as long as on its slowest rank.
absl::Status Measurement::SummariseEach(const Stopwatch& ours, Result& result) {
  if (!session_.options.report_iterations) return absl::OkStatus();
  const std::vector<double>& mine = ours.repetitions().back().each;
  const size_t ranks = static_cast<size_t>(session_.team.ranks());
  std::vector<double> all(mine.size() * ranks);
  RETURN_IF_ERROR(session_.team.GatherBytes(
      mine.data(), mine.size() * sizeof(double), all.data()));
  std::vector<double> us;
  const size_t skipped =
      std::min(static_cast<size_t>(session_.options.skipped_iterations),
               mine.size() - 1);
  for (size_t i = skipped; i < mine.size(); ++i) {
    double slowest = 0;
    for (size_t rank = 0; rank < ranks; ++rank)
      slowest = std::max(slowest, all[rank * mine.size() + i]);
    us.push_back(slowest * kMicroseconds);
  }
  std::ranges::sort(us);
  const double count = static_cast<double>(us.size());
  const double mean = std::accumulate(us.begin(), us.end(), 0.0) / count;
  double squares = 0;
  for (double value : us) squares += (value - mean) * (value - mean);
  const size_t p99 = static_cast<size_t>(std::ceil(0.99 * count)) - 1;
  result.each = {us.front(), us.back(), us[p99],
                 100 * std::sqrt(squares / count) / mean};
  return absl::OkStatus();
}

// ---- Check -----------------------------------------------------------------

absl::Status Measurement::Check(RowMemory& memory, Result& result) {
  if (session_.options.checks == 0) return absl::OkStatus();
  const Arguments arguments = ArgumentsOf(memory);
  int64_t wrong = 0;
  for (int64_t check = 1; check <= session_.options.checks; ++check) {
    memory.FillForCheck(kTimingSeed + static_cast<uint64_t>(check));
    RETURN_IF_ERROR(CallOnce(arguments));
    wrong += memory.CountWrong();
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> all, session_.team.Gather(wrong));
  result.wrong = std::accumulate(all.begin(), all.end(), int64_t{0});
  return absl::OkStatus();
}

}  // namespace trnccl::perf
