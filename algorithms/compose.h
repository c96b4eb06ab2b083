// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Composition: collectives within groups of ranks, one after the other, as one
// ordinary program. A stage is a collective of a group, as any builder writes
// it, and a map of its blocks to chunks of the whole; the composer renames its
// ranks, chunks and places, and corrects its marks: what's complete in a group
// may be partial in the whole. What it makes is proved like any schedule.
//
// All ranks of a group must add the stages they share in the same order.
//
// Thread rule: thread-compatible.
//
//   Composer composer(shape.rank, {.chunks_per_block = 4});
//   composer.Add({.group = node, .build = direct::ReduceScatter, ...});
//   composer.Add({.group = column, .build = ring::AllGather, ...});
//   return std::move(composer).Finish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl {

// Where a stage's input or output lies in the whole.
struct StageBuffer {
  static StageBuffer Input() { return {.buffer = Buffer::kInput}; }
  static StageBuffer Output() { return {.buffer = Buffer::kOutput}; }

  Buffer buffer = Buffer::kInput;
  // kScratch only: slot i holds this chunk.
  std::vector<int64_t> slots;
};

struct Stage {
  // What becomes of the values on their way through the stage.
  enum class Values {
    kPassed,  // nothing is folded
    kFolded,  // raw inputs are folded, but not all of them
    // Folds of an earlier stage become complete; what is, is passed on.
    kCompleted,
  };

  std::vector<int> group;  // the ranks, by their rank in the group
  int root = 0;            // in the group, for rooted collectives
  Program (*build)(const Shape& shape) = nullptr;
  // Of the whole, for what builds one lane; the lanes of one that builds
  // several are those of the whole.
  int lane = 0;
  // The chunks of the whole in each block of the stage. A block may be empty;
  // one that the builder cuts has a multiple of the parts. A builder's slot
  // must be as long whenever it's used.
  std::vector<std::vector<int64_t>> blocks;
  StageBuffer source;
  StageBuffer target;
  Values values = Values::kPassed;
  // Where the builder's own slots begin, behind those for StageBuffers.
  int64_t first_own_slot = 0;
};

class Composer {
 public:
  struct Limits {
    int64_t chunks_per_block = 1;
    size_t lanes = 1;
    // For StageBuffers, and for the builders' own slots.
    int64_t slots = 0;
    int64_t own_slots = 0;
  };
  Composer(int rank, const Limits& limits);

  // Nothing happens on ranks that aren't in the group. All ranks give the
  // composer the same limits.
  void Add(const Stage& stage);
  Program Finish() && { return std::move(program_); }

 private:
  struct Translation;

  Step Translate(const Translation& translation, const Step& step) const;

  const int rank_;
  const Limits limits_;
  Program program_;
};

}  // namespace trnccl
