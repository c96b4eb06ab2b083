// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/cpu_set.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trnccl {
namespace {

constexpr size_t kMaxShownChars = 80;

absl::Status Malformed(std::string_view text) {
  const std::string_view shown = text.substr(0, kMaxShownChars);
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(absl::string_view(shown.data(), shown.size())),
      "\" is no list of processors such as 0-3,8"));
}

// Takes a number off the front of the text, written as the kernel does.
bool TakeCpu(std::string_view& text, int* cpu) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *cpu);
  const size_t length = static_cast<size_t>(end - text.data());
  if (error != std::errc() || *cpu < 0 || *cpu >= kMaxCpus) return false;
  if (text.front() == '0' && length > 1) return false;
  text.remove_prefix(length);
  return true;
}

bool TakeChar(std::string_view& text, char wanted) {
  if (text.empty() || text.front() != wanted) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string CpuSetText(const CpuSet& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i]);
    if (end - i > 1) absl::StrAppend(&text, "-", cpus[end - 1]);
    i = end;
  }
  return text;
}

absl::StatusOr<CpuSet> ParseCpuSet(std::string_view text) {
  CpuSet cpus;
  std::string_view rest = text;
  while (!rest.empty()) {
    int first = 0;
    if (!cpus.empty() && !TakeChar(rest, ',')) return Malformed(text);
    if (!TakeCpu(rest, &first)) return Malformed(text);
    int last = first;
    if (TakeChar(rest, '-') && !TakeCpu(rest, &last)) return Malformed(text);
    if (last < first || (!cpus.empty() && first <= cpus.back())) {
      return Malformed(text);
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::string CpuSetsText(const std::vector<CpuSet>& sets) {
  return absl::StrJoin(sets, ";", [](std::string* out, const CpuSet& cpus) {
    out->append(CpuSetText(cpus));
  });
}

absl::StatusOr<std::vector<CpuSet>> ParseCpuSets(std::string_view text) {
  std::vector<CpuSet> sets;
  std::vector<char> seen(kMaxCpus);
  std::string_view rest = text;
  while (!rest.empty()) {
    if (!sets.empty() && !TakeChar(rest, ';')) return Malformed(text);
    const size_t end = std::min(rest.find(';'), rest.size());
    const absl::StatusOr<CpuSet> cpus = ParseCpuSet(rest.substr(0, end));
    if (!cpus.ok()) return cpus.status();
    if (cpus->empty()) return Malformed(text);
    for (const int cpu : *cpus) {
      if (seen[static_cast<size_t>(cpu)]++ != 0) return Malformed(text);
    }
    sets.push_back(*cpus);
    rest.remove_prefix(end);
  }
  return sets;
}

}  // namespace trnccl
