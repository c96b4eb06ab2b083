// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Compares what a call left in memory with what it must have left, bit by bit
// (an average of floating point may be 2 units in the last place off), and
// counts the elements that differ. Memory that a call must not touch, and
// memory it must overwrite, is filled with a canary first, so that a stale
// buffer is counted too.
//
// Thread rule: pure functions on the caller's memory.
//
//   FillCanary(recipe, {0, count}, recv);
//   ... the call ...
//   const Piece all = {.source = kFolded, .count = count};
//   int64_t wrong = CountWrong(recipe, std::span(&all, 1), recv);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings/mpi/data.h"

namespace trnccl::perf {

// In place of a rank: the fold of all ranks' inputs, or what was there before.
inline constexpr int kFolded = -1;
inline constexpr int kUntouched = -2;

// Elements [at, at + count) of a buffer are elements [begin, begin + count) of
// the source, a rank's input or one of the above. An untouched piece shows the
// canary of its own place, whatever `begin` is.
struct Piece {
  int source = kFolded;
  size_t begin = 0;
  size_t at = 0;
  size_t count = 0;
};

// Writes the canary of a buffer's elements [begin, begin + count) to `out`.
void FillCanary(const Recipe& recipe, Range range, void* out);

int64_t CountWrong(const Recipe& recipe, std::span<const Piece> pieces,
                   const void* buffer);

}  // namespace trnccl::perf
