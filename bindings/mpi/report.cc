// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/report.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trnccl::perf {
namespace {

// With as many digits as the width leaves room for.
std::string Fit(double value, int width) {
  for (int digits : {2, 1, 0}) {
    const std::string text = absl::StrFormat("%*.*f", width, digits, value);
    if (text.size() <= static_cast<size_t>(width)) return text;
  }
  return absl::StrFormat("%*.*e", width, width >= 7 ? 1 : 0, value);
}

std::string Column(std::optional<double> value, int width) {
  return absl::StrCat(
      "  ", value ? Fit(*value, width) : absl::StrFormat("%*s", width, "N/A"));
}

std::string Version() {
  int version = 0;
  static_cast<void>(trncclGetVersion(&version));
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".",
                      version % 100);
}

std::string Timestamp() {
  const std::time_t now = std::time(nullptr);
  std::array<char, 32> text = {};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S",
                std::localtime(&now));
  return text.data();
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    const bool plain = c >= ' ' && c != '"' && c != '\\';
    quoted += plain ? std::string(1, c)
                    : absl::StrFormat("\\u%04x", static_cast<unsigned char>(c));
  }
  return quoted + "\"";
}

template <typename T>
std::string OrNull(const std::optional<T>& value) {
  return value ? absl::StrCat(*value) : "null";
}

std::string JsonOf(const Row& row, Place place, const Options& options) {
  const Result& result = *row.places[static_cast<size_t>(place)];
  std::string text = absl::StrCat(
      "{\"bytes\": ", row.bytes, ", \"count\": ", row.count,
      ", \"type\": ", Quoted(RowOf(row.kind.type).name),
      ", \"operator\": ", Quoted(Name(row.kind.op)), ", \"root\": ", row.root,
      ", \"in_place\": ", place == Place::kIn ? "true" : "false",
      ", \"registered\": ", options.registered ? "true" : "false");
  absl::StrAppend(&text, ", \"time_us\": ", result.time_us.median,
                  ", \"algbw_gbps\": ", result.algbw_gbps,
                  ", \"busbw_gbps\": ", result.busbw_gbps,
                  ", \"wrong\": ", OrNull(result.wrong),
                  ", \"algorithm\": ", Quoted(result.algorithm));
  const auto ratio = result.ratio;
  absl::StrAppend(&text, ", \"mpi_time_us\": ", OrNull(result.mpi_time_us),
                  ", \"ratio\": ", ratio ? absl::StrCat(ratio->median) : "null",
                  ", \"limit_us\": ", OrNull(result.limit_us));
  absl::StrAppend(
      &text, ", \"time_us_min\": ", result.time_us.min,
      ", \"time_us_max\": ", result.time_us.max,
      ", \"ratio_min\": ", ratio ? absl::StrCat(ratio->min) : "null",
      ", \"ratio_max\": ", ratio ? absl::StrCat(ratio->max) : "null",
      ", \"iterations\": ", result.iterations,
      ", \"repetitions\": ", result.repetitions, "}");
  return text;
}

}  // namespace

Report::Report(const Options& options, std::string collective, int ranks)
    : options_(options), collective_(std::move(collective)), ranks_(ranks) {}

void Report::PrintHeader(std::span<const Device> devices) const {
  const bool factor = options_.step_factor > 1;
  const std::string iterations =
      options_.iterations == 0 ? "auto" : absl::StrCat(options_.iterations);
  absl::PrintF("# trnccl-tests version %s\n", Version());
  absl::PrintF("# Collective test starting: %s_perf\n", collective_);
  absl::PrintF(
      "# nThread %d nGpus 1 minBytes %d maxBytes %d step: %d(%s) warmup iters: "
      "%d iters: %s agg iters: %d validation: %d graph: 0 unalign: %d\n",
      options_.threads, options_.min_bytes, options_.max_bytes,
      factor ? options_.step_factor : options_.step_bytes,
      factor ? "factor" : "bytes", options_.warmup_iterations, iterations,
      options_.aggregated_calls, options_.checks, options_.unaligned_elements);
  absl::PrintF("# blocking: %d registered: %d fresh: %d compare: %s\n#\n",
               static_cast<int>(options_.mode), options_.registered,
               options_.fresh, options_.compare_mpi ? "mpi" : "none");
  absl::PrintF("# Using devices\n");
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    const Device& device = devices[rank];
    absl::PrintF("#  Rank %2d Group %2d Pid %6d on %10s device  0 [cpu] %s\n",
                 rank, device.group, device.process, device.host.data(),
                 device.processor.data());
  }
  PrintColumns();
  std::fflush(stdout);
}

// Two lines of names and units, and one above that names the places.
void Report::PrintColumns() const {
  struct Names {
    std::string top, bottom;
    void Append(const char* name, const char* unit, int width) {
      absl::StrAppend(&top, absl::StrFormat("  %*s", width, name));
      absl::StrAppend(&bottom, absl::StrFormat("  %*s", width, unit));
    }
  };
  Names place;
  place.Append(options_.report_cpu_time ? "cputime" : "time", "(us)", 7);
  place.Append("algbw", "(GB/s)", 6);
  place.Append("busbw", "(GB/s)", 6);
  place.Append("#wrong", "", 6);
  if (options_.report_iterations) {
    for (const char* name : {"i_min", "i_max", "i_p99"})
      place.Append(name, "(us)", 7);
    place.Append("i_cv%", "(%)", 7);
  }
  if (options_.compare_mpi) {
    place.Append("mpi", "(us)", 7);
    place.Append("ratio", "", 6);
    place.Append("limit", "(us)", 7);
  }
  Names row;
  row.Append("size", "(B)", 8);
  row.Append("count", "(elements)", 12);
  row.Append("type", "", 8);
  row.Append("redop", "", 6);
  row.Append("root", "", 6);
  const int place_width = static_cast<int>(place.top.size());
  absl::PrintF("#\n# %*s%*s%*s\n", static_cast<int>(row.top.size()), "",
               place_width, "out-of-place", place_width, "in-place");
  absl::PrintF("# %s%s%s%s\n", row.top, place.top, place.top,
               options_.report_timestamps ? "            timestamp" : "");
  absl::PrintF("# %s%s%s\n", row.bottom, place.bottom, place.bottom);
}

void Report::PrintCacheLine(const char* when, std::optional<double> ns) {
  cache_line_ns_.push_back(ns);
  if (ns)
    absl::PrintF("# Cache line, rank 0 to 1, one way, %-6s : %.0f ns\n", when,
                 *ns);
  else
    absl::PrintF("# Cache line, rank 0 to 1, one way, %-6s : not measured\n",
                 when);
}

void Report::Add(const Row& row) {
  absl::PrintF("%12d  %12d  %8s  %6s  %6d", row.bytes, row.count,
               std::string(RowOf(row.kind.type).name),
               std::string(Name(row.kind.op)), row.root);
  for (const std::optional<Result>& place : row.places) {
    PrintPlace(place);
    if (!place) continue;
    wrong_ += place->wrong.value_or(0);
    busbw_sum_gbps_ += place->busbw_gbps;
    ++busbw_count_;
  }
  if (options_.report_timestamps) absl::PrintF("  %s", Timestamp());
  absl::PrintF("\n");
  std::fflush(stdout);
  if (!options_.json_path.empty()) rows_.push_back(row);
}

void Report::PrintPlace(const std::optional<Result>& place) const {
  const auto column = [](std::optional<double> value, int width) {
    absl::PrintF("%s", Column(value, width));
  };
  const Result result = place.value_or(Result{});
  const auto if_there = [&](double value) {
    return place ? std::optional<double>(value) : std::nullopt;
  };
  column(if_there(result.time_us.median), 7);
  column(if_there(result.algbw_gbps), 6);
  column(if_there(result.busbw_gbps), 6);
  absl::PrintF("  %6s", result.wrong ? absl::StrCat(*result.wrong) : "N/A");
  if (options_.report_iterations) {
    const IterationStatistics each =
        result.each.value_or(IterationStatistics{});
    for (double value :
         {each.min_us, each.max_us, each.p99_us, each.variation_percent})
      column(if_there(value), 7);
  }
  if (!options_.compare_mpi) return;
  column(result.mpi_time_us, 7);
  column(
      result.ratio ? std::optional<double>(result.ratio->median) : std::nullopt,
      6);
  column(result.limit_us, 7);
}

double Report::average_busbw_gbps() const {
  return busbw_count_ == 0
             ? 0
             : busbw_sum_gbps_ / static_cast<double>(busbw_count_);
}

void Report::PrintMemory(std::span<const double> resident_mib) const {
  absl::PrintF("# %-20s : %.1f to %.1f MiB a process, at its peak\n",
               "Memory resident", std::ranges::min(resident_mib),
               std::ranges::max(resident_mib));
}

void Report::PrintFooter(std::optional<double> min_bandwidth_gbps) const {
  absl::PrintF("# %-20s : %d %s\n", "Out of bounds values", wrong_,
               wrong_ == 0 ? "OK" : "FAILED");
  const char* verdict = "";
  if (min_bandwidth_gbps)
    verdict = average_busbw_gbps() < *min_bandwidth_gbps ? "FAILED" : "OK";
  absl::PrintF("# %-20s : %g %s\n#\n", "Avg bus bandwidth",
               average_busbw_gbps(), verdict);
  absl::PrintF("# Collective test concluded: %s_perf\n", collective_);
  std::fflush(stdout);
}

std::string Report::Json() const {
  std::string text = absl::StrCat(
      "{\n\"benchmark\": ", Quoted(collective_), ",\n\"ranks\": ", ranks_,
      ",\n\"version\": ", Quoted(Version()),
      ",\n\"average_busbw_gbps\": ", average_busbw_gbps(), ",\n\"rows\": [");
  const char* separator = "\n";
  for (const Row& row : rows_) {
    for (Place place : {Place::kOut, Place::kIn}) {
      if (!row.places[static_cast<size_t>(place)]) continue;
      absl::StrAppend(&text, separator, JsonOf(row, place, options_));
      separator = ",\n";
    }
  }
  absl::StrAppend(&text, "\n],\n\"fresh\": ", options_.fresh ? "true" : "false",
                  ",\n\"blocking\": ", static_cast<int>(options_.mode),
                  ",\n\"cache_line_ns\": [");
  separator = "";
  for (const std::optional<double>& ns : cache_line_ns_) {
    absl::StrAppend(&text, separator, OrNull(ns));
    separator = ", ";
  }
  return text + "]\n}\n";
}

absl::Status Report::WriteJson() const {
  if (options_.json_path.empty()) return absl::OkStatus();
  std::ofstream file(options_.json_path);
  file << Json();
  file.close();
  if (file) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "can't write -J ", options_.json_path, ": ", strerror(errno)));
}

}  // namespace trnccl::perf
