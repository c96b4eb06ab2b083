// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The folds as compiled for the one instruction set of this build, against the
// oracle: a program that needs no library, for an emulated processor. Exits
// with 1 and says which fold is wrong.
#include <cstdio>
#include <string>

#include "ccl/kernels/fold-inl.h"
#include "ccl/kernels/fold_oracle.h"

namespace trnccl {
namespace {

std::string CheckPair(const FoldSpec& spec) {
  const auto fold = HWY_STATIC_DISPATCH(ChooseFold)(spec.type, spec.op);
  if (fold == nullptr) return "";
  uint64_t seed = 1;
  for (const size_t operands : {1, 2, 3, 8})
    for (const size_t count : {0, 1, 3, 7, 16, 17, 33, 64, 100, 513}) {
      const std::string problem =
          CheckRandomFold({spec, operands, count, ++seed}, fold);
      if (!problem.empty()) return problem + ", seed " + std::to_string(seed);
    }
  return "";
}

int CheckAll() {
  int wrong = 0;
  for (int type = 0; type < kDataTypes; ++type)
    for (int op = 0; op < kReduceOps; ++op) {
      const FoldSpec spec = {
          .type = static_cast<DataType>(type),
          .op = static_cast<ReduceOp>(op),
          .factor = {.real = -1.7, .imaginary = 0.3, .integer = -5},
          .ranks = 3};
      const std::string problem = CheckPair(spec);
      if (problem.empty()) continue;
      ++wrong;
      std::printf("%s of %s: %s\n", std::string(Name(spec.op)).c_str(),
                  std::string(Name(spec.type)).c_str(), problem.c_str());
    }
  std::printf("%s: %d pairs wrong\n", hwy::TargetName(HWY_TARGET), wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace trnccl

int main() { return trnccl::CheckAll(); }
