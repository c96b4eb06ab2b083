// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/executor/plan.h"

#include <algorithm>

namespace trnccl {
namespace {

CompiledOperand CompileOperand(const Operand& operand, const Spec& spec,
                               const Routes& routes) {
  CompiledOperand compiled{.partial = operand.partial};
  if (operand.peer != Operand::kNoPeer) {
    const Route& route = routes[operand.peer];
    compiled.kind = CompiledOperand::kMessage;
    compiled.peer = operand.peer;
    compiled.transport = route.transport;
    compiled.peer_index = route.peer_index;
    compiled.delivers =
        route.transport != nullptr && route.transport->traits().delivers;
    return compiled;
  }
  compiled.slot = operand.place.slot;
  switch (operand.place.buffer) {
    case Buffer::kInput:
      compiled.kind = CompiledOperand::kInput;
      compiled.raw = spec.reduces;
      break;
    case Buffer::kOutput:
      compiled.kind = CompiledOperand::kOutput;
      break;
    case Buffer::kScratch:
      compiled.kind = CompiledOperand::kScratch;
      break;
  }
  return compiled;
}

// Sorts the receivers by transport, so that each writes the payload once.
void CompileSends(const Step& step, const Routes& routes,
                  CompiledProgram* program) {
  std::vector<Transport*> seen;
  for (const int peer : step.send_to) {
    Transport* transport = routes[peer].transport;
    if (std::find(seen.begin(), seen.end(), transport) != seen.end()) continue;
    seen.push_back(transport);
    CompiledSend send{
        .transport = transport,
        .first_peer = static_cast<uint32_t>(program->peer_indices.size())};
    for (const int other : step.send_to)
      if (routes[other].transport == transport)
        program->peer_indices.push_back(routes[other].peer_index);
    send.peers =
        static_cast<uint32_t>(program->peer_indices.size()) - send.first_peer;
    program->most_peers = std::max(program->most_peers, send.peers);
    program->sends.push_back(send);
  }
}

CompiledStep CompileStep(const Step& step, const Spec& spec,
                         const Routes& routes, CompiledProgram* program) {
  CompiledStep compiled{
      .first_operand = static_cast<uint32_t>(program->operands.size()),
      .operands = static_cast<uint32_t>(step.operands.size()),
      .first_send = static_cast<uint32_t>(program->sends.size()),
      .first_receiver = step.send_to.empty() ? -1 : step.send_to.front(),
      .stores = step.stores,
      .completes = step.completes,
      .partial = step.partial,
      .store = step.store};
  for (const Operand& operand : step.operands)
    program->operands.push_back(CompileOperand(operand, spec, routes));
  CompileSends(step, routes, program);
  compiled.sends =
      static_cast<uint32_t>(program->sends.size()) - compiled.first_send;
  program->most_operands = std::max(program->most_operands, compiled.operands);
  return compiled;
}

struct Uses {
  bool input = false;
  bool output = false;
  bool scratch = false;
};

Uses UsesOf(const CompiledProgram& program, const CompiledStep& step) {
  Uses uses;
  for (uint32_t i = 0; i < step.operands; ++i) {
    const auto kind = program.operands[step.first_operand + i].kind;
    uses.input |= kind == CompiledOperand::kInput;
    uses.output |= kind == CompiledOperand::kOutput;
    uses.scratch |= kind == CompiledOperand::kScratch;
  }
  if (step.stores) {
    uses.output |= step.store.buffer == Buffer::kOutput;
    uses.scratch |= step.store.buffer == Buffer::kScratch;
  }
  return uses;
}

// Whether `next` goes on where `last` ends, wherever the step looks.
bool Continues(const Piece& last, const Piece& next, const Uses& uses) {
  if (uses.scratch) return false;
  if (uses.input && last.input_offset + last.count != next.input_offset)
    return false;
  return !uses.output || last.output_offset + last.count == next.output_offset;
}

// The elements of a chunk. One that only passes through this rank lies in
// neither buffer; that happens with even blocks alone.
int64_t CountOf(const CallLayout& layout, int64_t chunk,
                const Segment& segment) {
  if (layout.output.Holds(chunk))
    return layout.output.Find(chunk, segment).count;
  if (layout.input.Holds(chunk)) return layout.input.Find(chunk, segment).count;
  return ExtentInBlock({.block_count = layout.even_count,
                        .chunks_per_block = layout.chunks_per_block,
                        .part = chunk % layout.chunks_per_block},
                       segment)
      .count;
}

// Which step of which program, and where its source stands.
struct StepView {
  const CompiledProgram& program;
  size_t index;
  const Step& source;
};

void ResolveStep(const StepView& step, const CallLayout& layout,
                 const Segment& segment, PieceTable* table) {
  const Uses uses = UsesOf(step.program, step.program.steps[step.index]);
  PieceTable::Range& range = table->steps[step.index];
  range = {.first = static_cast<uint32_t>(table->pieces.size())};
  int64_t slot_index = 0;
  ForEachChunk(step.source, layout.chunks, [&](int64_t chunk) {
    Piece piece{.count = CountOf(layout, chunk, segment),
                .message_offset = range.message_count,
                .slot_index = slot_index++};
    if (uses.input)
      piece.input_offset = layout.input.Find(chunk, segment).offset;
    if (uses.output)
      piece.output_offset = layout.output.Find(chunk, segment).offset;
    range.message_count += piece.count;
    if (piece.count == 0) return;
    const bool first = table->pieces.size() == range.first;
    if (!first && Continues(table->pieces.back(), piece, uses)) {
      table->pieces.back().count += piece.count;
    } else {
      table->pieces.push_back(piece);
    }
  });
  range.pieces = static_cast<uint32_t>(table->pieces.size()) - range.first;
}

// Trees and nodes give ranks messages of different lengths. A row that's legal
// without nodes doesn't look at them.
bool RanksDiffer(const Algorithm& algorithm, const Shape& shape) {
  return SpecOf(algorithm.collective).rooted ||
         !algorithm.legal({.ranks = shape.ranks});
}

// The slices of all ranks must be cut alike, so the longest message of any rank
// counts. Where ranks don't differ one program tells: a thousand take long.
int64_t MostChunksOfAll(const Algorithm& algorithm, const Shape& shape,
                        const Program& own) {
  int64_t most = std::max<int64_t>(1, MostChunksPerMessage(own));
  if (!RanksDiffer(algorithm, shape)) return most;
  Shape other = shape;
  for (other.rank = 0; other.rank < shape.ranks; ++other.rank) {
    if (other.rank != shape.rank)
      most = std::max(most, MostChunksPerMessage(algorithm.build(other)));
  }
  return most;
}

}  // namespace

CompiledProgram Compile(const Algorithm& algorithm, const Shape& shape,
                        const Routes& routes) {
  CompiledProgram program{.algorithm = &algorithm,
                          .source = algorithm.build(shape)};
  const Spec& spec = SpecOf(algorithm.collective);
  for (const Lane& lane : program.source.lanes) {
    for (const Step& step : lane.steps)
      program.steps.push_back(CompileStep(step, spec, routes, &program));
    program.lane_end.push_back(static_cast<uint32_t>(program.steps.size()));
  }
  program.most_chunks_per_message =
      MostChunksOfAll(algorithm, shape, program.source);
  return program;
}

CallLayout LayoutOf(const CollectiveCall& call, const Shape& shape,
                    int64_t chunks_per_block) {
  const Spec& spec = SpecOf(call.collective);
  return {.input = BufferLayout(spec.input(shape), call.input_counts,
                                chunks_per_block),
          .output = BufferLayout(spec.output(shape), call.output_counts,
                                 chunks_per_block),
          .even_count = call.output_counts.even_count,
          .chunks_per_block = chunks_per_block,
          .chunks = spec.blocks(shape.ranks) * chunks_per_block};
}

void ResolvePieces(const CompiledProgram& program, const CallLayout& layout,
                   const Segment& segment, PieceTable* table) {
  table->pieces.clear();
  table->steps.resize(program.steps.size());
  size_t index = 0;
  for (const Lane& lane : program.source.lanes)
    for (const Step& step : lane.steps)
      ResolveStep({program, index++, step}, layout, segment, table);
}

Plan MakePlan(const CompiledProgram& program, const CollectiveCall& call,
              const Shape& shape, const PlanSizes& sizes) {
  Plan plan{.program = &program, .sizes = sizes};
  plan.even = !SpecOf(call.collective).uneven;
  plan.slot_count =
      (sizes.segment_count - 1) / program.source.chunks_per_block + 1;
  if (!plan.even) return plan;
  const CallLayout layout =
      LayoutOf(call, shape, program.source.chunks_per_block);
  const Segment last{.index = sizes.segments - 1,
                     .segment_count = sizes.segment_count};
  ResolvePieces(program, layout, last, &plan.last);
  if (sizes.segments > 1) {
    ResolvePieces(program, layout,
                  {.index = 0, .segment_count = sizes.segment_count},
                  &plan.full);
  }
  return plan;
}

}  // namespace trnccl
