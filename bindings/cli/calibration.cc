// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/calibration.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ccl/base/check.h"
#include "ccl/planner/model_file.h"

namespace trnccl::cli {
namespace {

struct Row {
  std::string_view name;  // as in the file
  std::string_view what;
  double& (*field)(LinkModel& model);
};

constexpr Row kRows[] = {
    {"latency_s", "half a round trip of a short message, less its sending",
     [](LinkModel& m) -> double& { return m.same_node.latency_s; }},
    {"message_s", "sending one of several short messages",
     [](LinkModel& m) -> double& { return m.same_node.message_s; }},
    {"seconds_per_byte", "writing what the peer has read before",
     [](LinkModel& m) -> double& { return m.same_node.seconds_per_byte; }},
    {"step_s", "what the executor adds to an exchange of short messages",
     [](LinkModel& m) -> double& { return m.step_s; }},
    {"fold_seconds_per_byte", "folding what the peer has written, float32 sum",
     [](LinkModel& m) -> double& { return m.fold_seconds_per_byte; }},
    {"copy_seconds_per_byte", "copying what the peer has written",
     [](LinkModel& m) -> double& { return m.copy_seconds_per_byte; }},
    {"peer_copy_call_s", "process_vm_readv",
     [](LinkModel& m) -> double& { return m.peer_copy.call_s; }},
    {"peer_copy_seconds_per_byte", "process_vm_readv",
     [](LinkModel& m) -> double& { return m.peer_copy.seconds_per_byte; }},
};

const Row* FindRow(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return &row;
  return nullptr;
}

std::vector<double> ValuesOf(const Row& row,
                             std::span<const LinkModel> models) {
  std::vector<double> values;
  for (LinkModel model : models) values.push_back(row.field(model));
  return values;
}

// A null row is one that's never measured.
std::string Comment(const Row* row, std::span<const LinkModel> models) {
  constexpr char kNotMeasured[] = "# not measured, built in\n";
  if (row == nullptr) return kNotMeasured;
  const std::vector<double> values = ValuesOf(*row, models);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  LinkModel built_in = DefaultModel();
  if (*least == *most && *least == row->field(built_in)) return kNotMeasured;
  return absl::StrCat("# ", std::string(row->what), ": ", *least, " to ", *most,
                      "\n");
}

}  // namespace

double Median(std::span<const double> values) {
  TRNCCL_CHECK(!values.empty());
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle]
                                : (sorted[middle - 1] + sorted[middle]) / 2;
}

Line FitLine(const Curve& seconds) {
  // Each point is weighed by 1 / seconds^2.
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    TRNCCL_CHECK(seconds[i] > 0);
    const auto x = static_cast<double>(kSizes[i]);
    const double weight = 1 / (seconds[i] * seconds[i]);
    w += weight;
    wx += weight * x;
    wy += weight * seconds[i];
    wxx += weight * x * x;
    wxy += weight * x * seconds[i];
  }
  const double rate = (w * wxy - wx * wy) / (w * wxx - wx * wx);
  if (rate < 0) return {.constant = wy / w};
  const double constant = (wy - rate * wx) / w;
  if (constant < 0) return {.rate = wxy / wxx};
  return {.constant = constant, .rate = rate};
}

LinkModel ModelOf(const Measured& measured) {
  LinkModel model = DefaultModel();
  model.same_node = {
      .latency_s = std::max(0.0, measured.half_round_trip - measured.send),
      .message_s = measured.send,
      .seconds_per_byte = FitLine(measured.write).rate};
  model.step_s = std::max(0.0, (measured.segment - measured.exchange) / 2);
  model.fold_seconds_per_byte = FitLine(measured.fold).rate / 2;
  model.copy_seconds_per_byte = FitLine(measured.copy).rate;
  if (measured.peer_copy.front() > 0) {
    const Line line = FitLine(measured.peer_copy);
    model.peer_copy = {.call_s = line.constant, .seconds_per_byte = line.rate};
  }
  return model;
}

std::string TuningText(std::span<const LinkModel> models,
                       const std::string& head) {
  TRNCCL_CHECK(!models.empty());
  LinkModel median = models.front();
  for (const Row& row : kRows)
    row.field(median) = Median(ValuesOf(row, models));
  const std::vector<std::string> lines =
      absl::StrSplit(ModelText(median), '\n', absl::SkipEmpty());
  std::string text = head;
  for (const std::string& line : lines) {
    const Row* row = FindRow(line.substr(0, line.find(' ')));
    absl::StrAppend(&text, Comment(row, models), line, "\n");
  }
  return text;
}

}  // namespace trnccl::cli
