// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The results, as nccl-tests' table on standard output and as JSON. README.md
// says what each column and field means.
//
// Thread rule: an object belongs to rank 0.
//
//   Report report(options, "all_reduce", ranks);
//   report.PrintHeader(devices);
//   report.Add(row);
//   report.PrintFooter(minimum_bandwidth);
//   RETURN_IF_ERROR(report.WriteJson());
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bindings/mpi/flags.h"
#include "bindings/mpi/row_memory.h"

namespace trnccl::perf {

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};

struct IterationStatistics {
  double min_us = 0;
  double max_us = 0;
  double p99_us = 0;
  double variation_percent = 0;  // standard deviation : mean
};

// One place of a row.
struct Result {
  Spread time_us;
  double algbw_gbps = 0;
  double busbw_gbps = 0;
  std::optional<int64_t> wrong;  // none: not checked
  std::string algorithm;
  std::optional<double> mpi_time_us;
  std::optional<Spread> ratio;
  std::optional<double> limit_us;
  int64_t iterations = 0;
  int repetitions = 0;
  std::optional<IterationStatistics> each;
};

struct Row {
  size_t bytes = 0;
  size_t count = 0;
  Kind kind = {};
  int root = -1;                                // -1: there's none
  std::array<std::optional<Result>, 2> places;  // by Place; none: not offered
};

// A line of the header.
struct Device {
  int group = 0;
  int process = 0;
  std::array<char, 64> host = {};
  std::array<char, 64> processor = {};
};

class Report {
 public:
  Report(const Options& options, std::string collective, int ranks);

  void PrintHeader(std::span<const Device> devices) const;
  void PrintCacheLine(const char* when, std::optional<double> ns);
  void Add(const Row& row);
  void PrintMemory(std::span<const double> resident_mib) const;

  // None: no bandwidth is asked for.
  void PrintFooter(std::optional<double> min_bandwidth_gbps) const;

  // Does nothing without a path.
  absl::Status WriteJson() const;

  int64_t wrong() const { return wrong_; }
  double average_busbw_gbps() const;

 private:
  void PrintColumns() const;
  void PrintPlace(const std::optional<Result>& place) const;
  std::string Json() const;

  const Options& options_;
  const std::string collective_;
  const int ranks_;
  std::vector<Row> rows_;
  std::vector<std::optional<double>> cache_line_ns_;
  int64_t wrong_ = 0;
  double busbw_sum_gbps_ = 0;
  int64_t busbw_count_ = 0;
};

}  // namespace trnccl::perf
