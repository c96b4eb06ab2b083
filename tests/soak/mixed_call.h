// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// One small call drawn at random: what all ranks are to call together, what
// each brings, and what each must have at the end. Data differ by call, rank
// and position, and fold to the same bits in any order.
//
// Not here: making the call (mixed_calls_test.cc).
//
// Thread rule: plain values and pure functions; a CallData to one thread.
//
//   MixedCall call = DrawCall(ranks, &random);
//   RankShare share = ShareOf(call, {.rank = 1, .ranks = ranks});
//   data.FillInput(call, 1, input);
//   EXPECT_TRUE(data.IsRight(call, share, output));
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "ccl/base/membership.h"
#include "ccl/base/types.h"

namespace trnccl {

class MixedDraw {
 public:
  explicit MixedDraw(uint64_t seed) : random_(seed) {}

  // 0 to bound - 1.
  size_t Below(size_t bound) { return random_() % bound; }
  bool Percent(size_t chance) { return Below(100) < chance; }

 private:
  std::mt19937_64 random_;
};

struct MixedCall {
  enum Kind : uint8_t { kCollective, kMessages };

  Kind kind = kCollective;
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kInt8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  size_t count = 0;
  // Of the v-variants: by rank, or by source * ranks + destination.
  std::vector<size_t> counts;
  bool in_place = false;
  // kMessages: each rank sends to the one so many further on.
  int shift = 0;
  bool any_source = false;
  uint64_t number = 0;  // no other call has it
};

MixedCall DrawCall(int ranks, MixedDraw* draw);

// A run of elements of a rank's input, or of the fold of all inputs.
struct SourcePiece {
  static constexpr int kAll = -1;

  int source = 0;
  size_t first = 0;
  size_t count = 0;
};

// Of one rank, in elements.
struct RankShare {
  size_t input_count = 0;
  std::vector<SourcePiece> output;
  // Where an in-place call's input and output begin in their buffer.
  size_t input_at = 0;
  size_t output_at = 0;

  size_t output_count() const;
};
RankShare ShareOf(const MixedCall& call, const Membership& me);

// No more than this in either direction, with any number of ranks up to 4.
inline constexpr size_t kMostCallBytes = size_t{256} << 10;

class CallData {
 public:
  explicit CallData(int ranks);

  // The whole of a rank's input.
  void FillInput(const MixedCall& call, int rank, std::byte* input,
                 size_t count);
  bool IsRight(const MixedCall& call, const RankShare& share,
               const std::byte* output);

 private:
  void Fill(const MixedCall& call, const SourcePiece& piece, std::byte* into);
  void Fold(const MixedCall& call, const SourcePiece& piece, std::byte* into);

  const size_t ranks_;
  // 0, 1 and 2 in each type.
  std::array<std::array<std::array<std::byte, 16>, 3>, kDataTypes> numbers_ =
      {};
  std::vector<std::byte> expected_;
  std::vector<std::vector<std::byte>> inputs_;  // by rank; of a fold
};

}  // namespace trnccl
