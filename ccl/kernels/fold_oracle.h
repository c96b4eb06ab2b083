// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// For tests: what a fold must give, element by element in plain scalar code
// that shares nothing with the vector code, and a driver of random folds. It
// needs no test framework, so it also runs where there is none.
//
// Thread rule: pure functions.
//
//   EXPECT_EQ(CheckRandomFold({spec, 3, 17, seed}, fold), "");
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ccl/kernels/fold.h"

namespace trnccl {

using FoldUnderTest = std::function<void(const FoldSpec&, const FoldCall&)>;

// The bytes that each result of `call` must hold.
std::vector<uint8_t> ExpectedFold(const FoldSpec& spec, const FoldCall& call);

// The first element that differs, in words; empty if there is none. Any NaN
// equals any other. `type` is kFloat32 for wide arrays.
std::string FirstDifference(DataType type, const std::vector<uint8_t>& expected,
                            const uint8_t* actual);

struct RandomFold {
  FoldSpec spec;
  size_t operands;
  size_t count;
  uint64_t seed;  // decides data, alignment, flags, results, in place or not
};

// Runs one random fold between canaries. Returns what's wrong, or nothing.
std::string CheckRandomFold(const RandomFold& random,
                            const FoldUnderTest& fold);

// The value of a narrow float's bits, and the bits of a value, by the formats'
// definitions.
double DecodeNarrow(DataType type, uint32_t bits);
uint32_t EncodeNarrow(DataType type, float value);

}  // namespace trnccl
