// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trnccl {
namespace {

std::string DumpSpan(const Span& span) {
  std::string text = absl::StrCat(span.first);
  if (span.chunks != 1) absl::StrAppend(&text, " x", span.chunks);
  if (span.chunks != 1 && span.stride != 1) {
    absl::StrAppend(&text, " by ", span.stride);
  }
  return text;
}

std::string DumpPlace(const Place& place) {
  switch (place.buffer) {
    case Buffer::kInput:
      return "input";
    case Buffer::kOutput:
      return "output";
    case Buffer::kScratch:
      return absl::StrCat("slot ", place.slot);
  }
  return "unknown";
}

std::string DumpOperand(const Operand& operand) {
  return absl::StrCat(operand.partial ? "partial " : "",
                      operand.peer == Operand::kNoPeer
                          ? DumpPlace(operand.place)
                          : absl::StrCat("from ", operand.peer));
}

}  // namespace

int64_t ChunkCount(const Step& step) {
  int64_t chunks = 0;
  for (const Span& span : step.spans) chunks += span.chunks;
  return chunks;
}

int64_t MostChunksPerMessage(const Program& program) {
  int64_t most = 0;
  for (const Lane& lane : program.lanes) {
    for (const Step& step : lane.steps) {
      if (!step.send_to.empty()) most = std::max(most, ChunkCount(step));
    }
  }
  return most;
}

std::string Dump(const Step& step) {
  std::string text = "[";
  const char* separator = "";
  for (const Span& span : step.spans) {
    absl::StrAppend(&text, separator, DumpSpan(span));
    separator = ", ";
  }
  separator = "] ";
  for (const Operand& operand : step.operands) {
    absl::StrAppend(&text, separator, DumpOperand(operand));
    separator = " + ";
  }
  if (step.operands.empty()) absl::StrAppend(&text, "]");
  if (step.stores) absl::StrAppend(&text, " => ", DumpPlace(step.store));
  if (!step.send_to.empty()) {
    absl::StrAppend(&text, " -> ", absl::StrJoin(step.send_to, ", "));
  }
  if (step.partial) absl::StrAppend(&text, " (partial)");
  if (step.completes) absl::StrAppend(&text, " (complete)");
  return text;
}

std::string Dump(const Program& program) {
  std::string text = absl::StrCat("chunks per block ", program.chunks_per_block,
                                  ", scratch slots ", program.scratch_slots,
                                  ", lanes ", program.lanes.size(), "\n");
  for (size_t lane = 0; lane < program.lanes.size(); ++lane) {
    absl::StrAppend(&text, "lane ", lane, "\n");
    const std::vector<Step>& steps = program.lanes[lane].steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      absl::StrAppend(&text, "  ", i, ": ", Dump(steps[i]), "\n");
    }
  }
  return text;
}

}  // namespace trnccl
