// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Plays all ranks of a schedule over arrays, in one thread: the numeric oracle
// that tests hold the executor against. Slow and plain on purpose. It knows
// neither types nor operators: the caller folds.
//
// Thread rule: pure function, apart from what the caller's fold does.
//
//   ASSIGN_OR_RETURN(outputs, Interpret(schedule,
//                                       {.collective = Collective::kAllReduce,
//                                        .ranks = 4,
//                                        .block_counts = {1000},
//                                        .element_bytes = 4,
//                                        .segment_count = 256},
//                                       inputs, fold));
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/schedule.h"
#include "ccl/base/types.h"

namespace trnccl {

struct InterpretedCall {
  enum class Memory { kOutOfPlace, kInPlace };

  Collective collective = Collective::kAllReduce;
  int ranks = 1;
  int root = 0;
  // Elements by block; a single count holds for all blocks. In place,
  // all-to-all needs equal counts both ways.
  std::vector<int64_t> block_counts;
  size_t element_bytes = 1;
  // Of an element of a partial value; 0: as any other. Wider ones need a
  // schedule that keeps no partial value in its output (a left fold).
  size_t partial_bytes = 0;
  int64_t segment_count = 1;  // elements of a block per segment
  Memory memory = Memory::kOutOfPlace;
};

// result[i] = operand_0[i] op operand_1[i] ... for `count` elements. In a
// reduction even a single operand goes through the fold, which copies it, with
// prepare, finish and conversion where asked for.
struct InterpretedFold {
  struct Operand {
    const std::byte* data = nullptr;
    bool raw = false;  // a rank's input: apply prepare
    bool partial = false;
  };
  std::span<const Operand> operands;
  std::byte* result = nullptr;
  int64_t count = 0;
  bool completes = false;  // apply finish
  bool partial = false;
};
using FoldFunction = std::function<void(const InterpretedFold&)>;

using Bytes = std::vector<std::byte>;

// Each rank's output. `inputs` has one entry a rank, its blocks back to back.
// The schedule must be one that the verifier accepts.
absl::StatusOr<std::vector<Bytes>> Interpret(const Schedule& schedule,
                                             const InterpretedCall& call,
                                             const std::vector<Bytes>& inputs,
                                             const FoldFunction& fold);

}  // namespace trnccl
