// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The benchmarks' data: inputs made from (seed, rank, position), so crafted
// that every result is exact whatever the order of folding, and the results
// themselves, computed one rank after the other by plain arithmetic. It knows
// nothing of the library's kernels.
//
// How exactness is had: sums of whole numbers whose total the type can hold (on
// many ranks with a short type some bring zero); products of one full mantissa
// with a few powers of two and many signs; minimum, maximum and bitwise of any
// bits; integer sums and products wrap around.
//
// Thread rule: pure functions on the caller's memory.
//
//   const Recipe recipe = {trncclBfloat16, Operator::kSum, ranks, seed};
//   MakeInput(recipe, rank, {0, count}, send);
//   MakeFold(recipe, {0, count}, expected);
#pragma once

#include <cstddef>
#include <cstdint>

#include "bindings/mpi/types.h"
#include "ccl/trnccl.h"

namespace trnccl::perf {

struct Recipe {
  trncclDataType_t type = trncclFloat32;
  Operator op = Operator::kNone;  // kNone: any bits
  int ranks = 1;
  uint64_t seed = 0;
};

// Elements [begin, begin + count) of a rank's input.
struct Range {
  size_t begin = 0;
  size_t count = 0;
};

void MakeInput(const Recipe& recipe, int rank, Range range, void* out);

// The inputs of all ranks, folded by the recipe's operator.
void MakeFold(const Recipe& recipe, Range range, void* out);

// A small whole number as one element.
void MakeNumber(trncclDataType_t type, int value, void* out);

}  // namespace trnccl::perf
