// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The command line of `trnccl plan`.
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/cli/plan.h"
#include "ccl/base/check.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  fuzz::Input input(data, size);
  std::vector<std::string> texts;
  while (!input.empty()) texts.emplace_back(input.TakePiece());
  std::vector<char*> arguments;
  for (std::string& text : texts) arguments.push_back(text.data());
  const auto options = cli::ParsePlanFlags(arguments);
  if (options.ok()) TRNCCL_CHECK(options->nodes <= options->ranks);
  return 0;
}
