// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/kernels/fold.h"

#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"

// Scalable vectors can't lie in arrays, and SSSE3 alone is a rarity.
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ccl/kernels/fold-inl.h"
// The better targets come first, the baseline last.
// clang-format off
#include "hwy/foreach_target.h"
#include "ccl/kernels/fold-inl.h"
// clang-format on

namespace trnccl {
namespace {

HWY_EXPORT(ChooseFold);

std::string OperatorsOf(DataType type) {
  std::string names;
  for (int op = 0; op < kReduceOps; ++op) {
    const ReduceOp candidate = static_cast<ReduceOp>(op);
    if (!IsSupported(type, candidate)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ",
                    std::string(Name(candidate)));
  }
  return names;
}

absl::Status Refused(const FoldSpec& spec) {
  if (ElementBytes(spec.type) == 0)
    return absl::InvalidArgumentError(absl::StrCat(
        "reduction of an unknown data type, number ",
        static_cast<int>(spec.type), ": pass a value of the enumeration"));
  const std::string op =
      static_cast<int>(spec.op) < kReduceOps
          ? std::string(Name(spec.op))
          : absl::StrCat("operator number ", static_cast<int>(spec.op));
  const std::string type(Name(spec.type));
  return absl::InvalidArgumentError(
      absl::StrCat("reduction ", op, " of ", type, " has no meaning: ", type,
                   " takes ", OperatorsOf(spec.type)));
}

}  // namespace

bool IsSupported(DataType type, ReduceOp op) {
  return HWY_DYNAMIC_DISPATCH(ChooseFold)(type, op) != nullptr;
}

absl::StatusOr<Folder> MakeFolder(const FoldSpec& spec) {
  Folder folder;
  folder.spec_ = spec;
  folder.function_ = HWY_DYNAMIC_DISPATCH(ChooseFold)(spec.type, spec.op);
  if (folder.function_ == nullptr) return Refused(spec);
  if (spec.ranks < 1 || spec.ranks > std::numeric_limits<int32_t>::max())
    return absl::InvalidArgumentError(absl::StrCat(
        "average over ", spec.ranks, " ranks: there must be at least one"));
  folder.has_prepare_ =
      spec.op == ReduceOp::kPremulSum || spec.type == DataType::kBool;
  folder.has_finish_ = spec.op == ReduceOp::kAvg;
  return folder;
}

}  // namespace trnccl
