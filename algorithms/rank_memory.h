// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// One rank's buffers in a symbolic run: what each place holds and which lanes
// touched it. It refuses what no step may do with memory; what the values mean
// is the verifier's business.
//
// In place, input and output are one piece of memory: the shorter buffer is
// where its blocks lie in the longer one, and buffers of the same length
// coincide position by position.
//
// Thread rule: thread-compatible.
//
//   ASSIGN_OR_RETURN(Held held, memory.Read({.place = {Buffer::kInput}, ...}));
//   ASSIGN_OR_RETURN(Cell * cell, memory.Find({.place = step.store, ...}));
//   RETURN_IF_ERROR(memory.Store(*cell, held.value, access));
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl {

class RankMemory {
 public:
  static constexpr int32_t kNone = -1;

  enum class Aliasing { kOutOfPlace, kInPlace };

  struct Value {
    int32_t tree = kNone;
    bool partial = false;
  };
  struct Cell {
    Value value;
    int32_t pins = kNone;  // the caller's list of messages that point here
    int32_t lane = kNone;  // that touched it
    bool shared = false;   // by several lanes
    bool stored = false;
    int64_t chunk = kNone;
  };
  // Where a chunk of a step lies: `index` counts the step's chunks.
  struct Access {
    Place place;
    int64_t index = 0;
    int64_t chunk = 0;
    int lane = 0;
  };
  struct Held {
    Value value;
    Cell* cell = nullptr;  // null: input that nothing ever changes
  };

  RankMemory(const Program& program, const Spec& spec, const Shape& shape,
             Aliasing aliasing);

  // An input chunk's value is Value{}: the caller knows what it is.
  absl::StatusOr<Held> Read(const Access& access);

  // The cell that a store to the place would change.
  absl::StatusOr<Cell*> Find(const Access& access);
  absl::Status Store(Cell& cell, const Value& value, const Access& access);

 private:
  int64_t PositionOf(const BlockRange& range, int64_t chunk) const;
  absl::StatusOr<Held> ReadInput(const Access& access);
  absl::Status Touch(Cell& cell, const Access& access);

  const bool reduces_;
  const int64_t chunks_per_block_;
  const BlockRange input_;
  const BlockRange output_;
  const Aliasing aliasing_;
  std::vector<Cell> output_cells_;
  std::vector<Cell> scratch_cells_;
};

}  // namespace trnccl
