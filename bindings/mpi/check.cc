// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/check.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace trnccl::perf {
namespace {

constexpr size_t kBlockElements = 4096;
constexpr uint64_t kAverageUlps = 2;

struct Comparison {
  size_t element_bytes;
  size_t component_bytes;
  uint64_t ulps;
};

Comparison ComparisonOf(const Recipe& recipe, const Piece& piece) {
  const TypeRow& row = RowOf(recipe.type);
  const bool complex = row.kind == TypeKind::kComplex;
  const bool floating = complex || row.kind == TypeKind::kFloat;
  const bool rounded =
      floating && recipe.op == Operator::kAvg && piece.source == kFolded;
  return {row.bytes, complex ? row.bytes / 2 : row.bytes,
          rounded ? kAverageUlps : 0};
}

// The bits of a floating-point number as an integer in the numbers' order.
int64_t Ordinal(const std::byte* component, size_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, component, bytes);
  const uint64_t sign = uint64_t{1} << (8 * bytes - 1);
  const int64_t magnitude = static_cast<int64_t>(bits & (sign - 1));
  return (bits & sign) != 0 ? -magnitude : magnitude;
}

bool IsWrong(const Comparison& how, const std::byte* actual,
             const std::byte* expected) {
  if (std::memcmp(actual, expected, how.element_bytes) == 0) return false;
  if (how.ulps == 0) return true;
  for (size_t at = 0; at < how.element_bytes; at += how.component_bytes) {
    const int64_t a = Ordinal(actual + at, how.component_bytes);
    const int64_t b = Ordinal(expected + at, how.component_bytes);
    // In unsigned arithmetic, where a difference can't overflow.
    const uint64_t distance = static_cast<uint64_t>(std::max(a, b)) -
                              static_cast<uint64_t>(std::min(a, b));
    if (distance > how.ulps) return true;
  }
  return false;
}

void MakeExpected(const Recipe& recipe, const Piece& part, void* out) {
  const Range range = {part.begin, part.count};
  if (part.source == kUntouched)
    FillCanary(recipe, {part.at, part.count}, out);
  else if (part.source == kFolded)
    MakeFold(recipe, range, out);
  else
    MakeInput(recipe, part.source, range, out);
}

}  // namespace

void FillCanary(const Recipe& recipe, Range range, void* out) {
  const size_t bytes = RowOf(recipe.type).bytes;
  const Recipe canary = {trncclUint8, Operator::kNone, 1, ~recipe.seed};
  MakeInput(canary, 0, {range.begin * bytes, range.count * bytes}, out);
}

int64_t CountWrong(const Recipe& recipe, std::span<const Piece> pieces,
                   const void* buffer) {
  std::vector<std::byte> expected(kBlockElements * RowOf(recipe.type).bytes);
  int64_t wrong = 0;
  for (const Piece& piece : pieces) {
    const Comparison how = ComparisonOf(recipe, piece);
    for (size_t done = 0; done < piece.count; done += kBlockElements) {
      const Piece part = {piece.source, piece.begin + done, piece.at + done,
                          std::min(kBlockElements, piece.count - done)};
      MakeExpected(recipe, part, expected.data());
      const std::byte* actual =
          static_cast<const std::byte*>(buffer) + part.at * how.element_bytes;
      const size_t bytes = part.count * how.element_bytes;
      if (std::memcmp(actual, expected.data(), bytes) == 0) continue;
      for (size_t at = 0; at < bytes; at += how.element_bytes)
        wrong += IsWrong(how, actual + at, expected.data() + at);
    }
  }
  return wrong;
}

}  // namespace trnccl::perf
