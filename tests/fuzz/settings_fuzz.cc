// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Settings, tuning files and choices of algorithms.
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "ccl/base/check.h"
#include "ccl/base/settings.h"
#include "ccl/planner/algorithm_filter.h"
#include "ccl/planner/model_file.h"
#include "tests/fuzz/input.h"

namespace trnccl {
namespace {

void TakeSettings(fuzz::Input& input) {
  std::vector<std::string> entries;
  while (!input.empty()) entries.emplace_back(input.TakePiece());
  std::vector<const char*> environment;
  for (const std::string& entry : entries) environment.push_back(entry.c_str());
  environment.push_back(nullptr);
  static_cast<void>(LoadSettings(environment.data(), {}));
  const char* const nothing[] = {nullptr};
  const auto settings = LoadSettings(nothing, entries);
  if (!settings.ok()) return;
  static_cast<void>(SettingsText(*settings));
  static_cast<void>(AgreedSettingsText(*settings));
}

void TakeModel(std::string_view text) {
  const auto model = ParseModel(text);
  if (!model.ok()) return;
  const auto again = ParseModel(ModelText(*model));
  TRNCCL_CHECK(again.ok() && ModelText(*again) == ModelText(*model));
}

void TakeFilter(std::string_view text) {
  const auto filter = AlgorithmFilter::Parse(text);
  if (!filter.ok()) return;
  for (const Algorithm& algorithm : Catalog())
    static_cast<void>(filter->Allows(algorithm));
}

}  // namespace
}  // namespace trnccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  fuzz::Input input(data, size);
  switch (input.Take<uint8_t>() % 3) {
    case 0:
      TakeSettings(input);
      break;
    case 1:
      TakeModel(input.Rest());
      break;
    case 2:
      TakeFilter(input.Rest());
      break;
  }
  return 0;
}
