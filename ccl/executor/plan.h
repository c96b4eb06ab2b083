// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A plan: a program made ready to run for one shape of call. Peers are turned
// into transports, chunks into extents, once; running a cached plan divides,
// searches and allocates nothing.
//
// It's pure preparation: what runs is ccl/executor/executor.h, what chooses is
// ccl/tuner.
//
// Thread rule: immutable once made.
//
//   CompiledProgram program = Compile(algorithm.build(shape), shape, routes);
//   Plan plan = MakePlan(program, {...sizes...});
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/catalog.h"
#include "algorithms/layout.h"
#include "algorithms/schedule.h"
#include "algorithms/spec.h"
#include "ccl/executor/call.h"
#include "ccl/route.h"

namespace trnccl {

struct CompiledOperand {
  enum Kind : uint8_t { kMessage, kInput, kOutput, kScratch };

  Kind kind = kInput;
  bool raw = false;      // a rank's own input of a reducing collective
  bool partial = false;  // as Operand::partial
  int peer = -1;
  Transport* transport = nullptr;
  uint32_t peer_index = 0;
  bool delivers = false;  // as Traits::delivers
  int64_t slot = 0;
};

// The links of one step that go by one transport: the payload is written once.
struct CompiledSend {
  Transport* transport = nullptr;
  uint32_t first_peer = 0;  // in CompiledProgram::peer_indices
  uint32_t peers = 0;
};

struct CompiledStep {
  uint32_t first_operand = 0;
  uint32_t operands = 0;
  uint32_t first_send = 0;
  uint32_t sends = 0;
  int first_receiver = -1;  // the only one in all-to-all-v
  bool stores = false;
  bool completes = false;
  bool partial = false;
  Place store;
};

// One rank's program with its peers resolved; knows no sizes.
struct CompiledProgram {
  const Algorithm* algorithm = nullptr;
  Program source;
  std::vector<CompiledStep> steps;  // lane after lane
  std::vector<uint32_t> lane_end;   // by lane: one past its last step
  std::vector<CompiledOperand> operands;
  std::vector<CompiledSend> sends;
  std::vector<uint32_t> peer_indices;
  int64_t most_chunks_per_message = 1;
  uint32_t most_operands = 1;
  uint32_t most_peers = 1;  // of one send

  int lanes() const { return static_cast<int>(lane_end.size()); }
};

CompiledProgram Compile(const Algorithm& algorithm, const Shape& shape,
                        const Routes& routes);

// Elements that lie in a row in every place that the step touches. Offsets are
// in elements from the start of each buffer.
struct Piece {
  int64_t count = 0;
  int64_t message_offset = 0;
  int64_t input_offset = 0;
  int64_t output_offset = 0;
  int64_t slot_index = 0;  // added to the slot of scratch places
};

// The pieces of every step for one segment.
struct PieceTable {
  struct Range {
    uint32_t first = 0;
    uint32_t pieces = 0;
    int64_t message_count = 0;  // elements
  };
  std::vector<Piece> pieces;
  std::vector<Range> steps;  // as CompiledProgram::steps
};

// A rank's two buffers in one call.
struct CallLayout {
  BufferLayout input;
  BufferLayout output;
  int64_t even_count;  // of blocks that only pass through this rank
  int64_t chunks_per_block;
  int64_t chunks;  // in all
};
CallLayout LayoutOf(const CollectiveCall& call, const Shape& shape,
                    int64_t chunks_per_block);

void ResolvePieces(const CompiledProgram& program, const CallLayout& layout,
                   const Segment& segment, PieceTable* table);

struct PlanSizes {
  int64_t segment_count = 1;  // elements of a block in one segment
  int64_t segments = 1;
  int slots = 1;  // segments in flight
};

// When the call may run on an engine instead (transports/engine.h).
enum class EngineUse : uint8_t {
  kNever,
  kMapped,  // if all buffers are mapped
  kAlways,  // and if they must be copied from and to
};

struct Plan {
  const CompiledProgram* program = nullptr;
  PlanSizes sizes;
  // Even blocks: the pieces of every full segment, to be shifted by whole
  // segments, and those of the last. Uneven: empty; resolved as it runs.
  bool even = true;
  PieceTable full;
  PieceTable last;
  // The most elements that a scratch slot holds.
  int64_t slot_count = 0;
  double seconds = 0;  // what it should cost, as it was chosen
  EngineUse engine = EngineUse::kNever;
};

Plan MakePlan(const CompiledProgram& program, const CollectiveCall& call,
              const Shape& shape, const PlanSizes& sizes);

}  // namespace trnccl
