// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a call must give, bit by bit: the interpreter plays the very schedule
// that the library was told to use, with the library's own folds, which have
// tests of their own against plain arithmetic.
//
//   Case one{.algorithm = &row, .ranks = 4, .count = 17};
//   std::vector<Bytes> inputs = InputsOf(one);
//   std::vector<Bytes> outputs = ExpectedOutputs(one, inputs);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "algorithms/interpreter.h"
#include "algorithms/spec.h"
#include "ccl/base/types.h"

namespace trnccl {

struct Case {
  const Algorithm* algorithm = nullptr;
  int ranks = 1;
  int root = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int64_t count = 0;  // elements of each block
  // Elements by block instead, where the blocks are uneven.
  std::vector<int64_t> counts;
  int64_t segment_count = INT64_MAX;
  bool strict = false;
  const Grid* grid = nullptr;
};

std::string Describe(const Case& one);

// Each rank's input: a hash of rank and position, so that nothing that is lost,
// doubled or shuffled goes unseen. Floats are finite.
std::vector<Bytes> InputsOf(const Case& one);

// By what `rank` premultiplies: a number of every type, whose products aren't.
double PremulFactorOf(int rank);

// One element with that value.
Bytes ElementOf(DataType type, double value);

std::vector<Bytes> ExpectedOutputs(const Case& one,
                                   const std::vector<Bytes>& inputs);

}  // namespace trnccl
