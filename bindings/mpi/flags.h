// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The benchmarks' command line: the flags of nccl-tests that have a meaning on
// a CPU, and those of our own. A flag of nccl-tests that has none is accepted
// at its default and refused otherwise.
//
// Thread rule: call from the main thread; Options is a plain value.
//
//   ASSIGN_OR_RETURN(Options options, ParseFlags(argc, argv));
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bindings/mpi/traits.h"
#include "bindings/mpi/types.h"

namespace trnccl::perf {

inline constexpr int kAllRoots = -1;

// How calls are made: -z.
enum class CallMode {
  kAsynchronous = 0,  // waited for after each -m calls
  kBlocking = 1,
  kWaited = 2,        // asynchronous, each waited for at once
  kSynchronised = 3,  // blocking, the ranks meet before each iteration
};

// Whose time is reported: -a.
enum class Average { kRank0 = 0, kMean = 1, kMin = 2, kMax = 3 };

struct Options {
  bool help = false;
  int threads = 1;
  size_t min_bytes = size_t{32} << 20;
  size_t max_bytes = size_t{32} << 20;
  size_t step_bytes = size_t{1} << 20;
  size_t step_factor = 1;  // 1: add step_bytes
  int64_t iterations = 0;  // 0: as many as last 10 ms
  int64_t warmup_iterations = 1;
  int64_t aggregated_calls = 1;
  int64_t cycles = 1;  // 0: forever
  int64_t checks = 1;
  bool all_operators = false;
  Operator op = Operator::kSum;
  bool all_types = false;
  trncclDataType_t type = trncclFloat32;
  int root = 0;  // or kAllRoots
  CallMode mode = CallMode::kBlocking;
  bool report_cpu_time = false;
  bool report_timestamps = false;
  Average average = Average::kMean;
  bool registered = false;
  int64_t timeout_s = 0;  // 0: the library's own
  std::string json_path;
  bool report_memory = false;
  size_t unaligned_elements = 0;
  bool report_iterations = false;
  int64_t skipped_iterations = 0;
  bool compare_mpi = false;
  bool fresh = false;
};

// A combination that a row is printed for.
struct Kind {
  trncclDataType_t type;
  Operator op;  // kNone of a collective that doesn't reduce
};

// InvalidArgument: an unknown flag or a bad value. Unimplemented: a flag of
// nccl-tests with no meaning here. OutOfRange: sizes that can't be.
absl::StatusOr<Options> ParseFlags(int argc, char** argv);

// All pairs of type and operator that the options ask for and that have a
// meaning; InvalidArgument if there's none.
absl::StatusOr<std::vector<Kind>> KindsOf(const Options& options,
                                          const Traits& traits);

// Every flag with its default.
std::string HelpText(std::string_view collective);

}  // namespace trnccl::perf
