// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/planner/model_file.h"

#include <fstream>
#include <sstream>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

struct Row {
  std::string_view name;
  double& (*field)(LinkModel& model);
};

constexpr Row kRows[] = {
    {"latency_s",
     [](LinkModel& m) -> double& { return m.same_node.latency_s; }},
    {"message_s",
     [](LinkModel& m) -> double& { return m.same_node.message_s; }},
    {"seconds_per_byte",
     [](LinkModel& m) -> double& { return m.same_node.seconds_per_byte; }},
    {"node_latency_s",
     [](LinkModel& m) -> double& { return m.other_node.latency_s; }},
    {"node_message_s",
     [](LinkModel& m) -> double& { return m.other_node.message_s; }},
    {"node_receive_s",
     [](LinkModel& m) -> double& { return m.other_node.receive_s; }},
    {"node_seconds_per_byte",
     [](LinkModel& m) -> double& { return m.other_node.seconds_per_byte; }},
    {"step_s", [](LinkModel& m) -> double& { return m.step_s; }},
    {"fold_seconds_per_byte",
     [](LinkModel& m) -> double& { return m.fold_seconds_per_byte; }},
    {"copy_seconds_per_byte",
     [](LinkModel& m) -> double& { return m.copy_seconds_per_byte; }},
    {"peer_copy_call_s",
     [](LinkModel& m) -> double& { return m.peer_copy.call_s; }},
    {"peer_copy_seconds_per_byte",
     [](LinkModel& m) -> double& { return m.peer_copy.seconds_per_byte; }},
};

const Row* FindRow(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return &row;
  return nullptr;
}

absl::Status ParseLine(const std::string& line, LinkModel* model) {
  const std::vector<std::string> parts = absl::StrSplit(line, '=');
  std::string name = parts.front();
  absl::StripAsciiWhitespace(&name);
  const Row* row = FindRow(name);
  double value = 0;
  if (parts.size() != 2 || row == nullptr ||
      !absl::SimpleAtod(parts[1], &value) || !(value >= 0 && value < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tuning: \"", line,
        "\" isn't \"name = seconds\" with a known name and a number from 0 to "
        "1"));
  }
  row->field(*model) = value;
  return absl::OkStatus();
}

}  // namespace

LinkModel DefaultModel() {
  return {.same_node = {.latency_s = 150e-9,
                        .message_s = 20e-9,
                        .seconds_per_byte = 0.06e-9},
          .other_node = {.latency_s = 10e-6,
                         .message_s = 4e-6,
                         .receive_s = 4e-6,
                         .seconds_per_byte = 0.4e-9},
          .step_s = 30e-9,
          .fold_seconds_per_byte = 0.04e-9,
          .copy_seconds_per_byte = 0.06e-9,
          .peer_copy = {.call_s = 600e-9, .seconds_per_byte = 0.045e-9}};
}

absl::StatusOr<LinkModel> ParseModel(std::string_view text) {
  LinkModel model = DefaultModel();
  const std::vector<std::string> lines =
      absl::StrSplit(std::string(text), '\n');
  for (std::string line : lines) {
    line = line.substr(0, line.find('#'));
    absl::StripAsciiWhitespace(&line);
    if (!line.empty()) RETURN_IF_ERROR(ParseLine(line, &model));
  }
  return model;
}

absl::StatusOr<LinkModel> ReadModelFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat("TRNCCL_TUNING_FILE: ", path,
                                            " can't be read, or is empty"));
  }
  return ParseModel(text.str());
}

absl::StatusOr<LinkModel> ChosenModel(const std::string& path) {
  if (path.empty()) return DefaultModel();
  return ReadModelFile(path);
}

std::string ModelText(const LinkModel& model) {
  LinkModel copy = model;
  std::string text;
  for (const Row& row : kRows)
    absl::StrAppend(&text, std::string(row.name), " = ", row.field(copy), "\n");
  return text;
}

}  // namespace trnccl
