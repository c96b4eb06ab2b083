// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/compose.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "algorithms/step_builder.h"
#include "ccl/base/check.h"

namespace trnccl {
namespace {

int64_t SlotOf(const StageBuffer& buffer, const std::vector<int64_t>& chunks,
               int64_t first_slot) {
  if (buffer.buffer != Buffer::kScratch) return 0;
  const auto start = std::ranges::find(buffer.slots, chunks.front());
  // A step's chunks lie in consecutive slots.
  const auto [slots_end, chunks_end] =
      std::mismatch(start, buffer.slots.end(), chunks.begin(), chunks.end());
  TRNCCL_CHECK(chunks_end == chunks.end());
  return first_slot + (start - buffer.slots.begin());
}

}  // namespace

// From the words of a stage to those of the whole.
struct Composer::Translation {
  const Stage& stage;
  int64_t stage_chunks_per_block = 1;
  int64_t stage_total = 1;
  int64_t chunks_per_slot = 1;  // of the stage's own scratch
  int64_t first_own_slot = 0;   // of the same

  // The chunks that the stage's step names.
  std::vector<int64_t> ChunksOf(const Step& step) const {
    std::vector<int64_t> chunks;
    ForEachChunk(step, stage_total, [&](int64_t chunk) {
      const auto& block =
          stage.blocks[static_cast<size_t>(chunk / stage_chunks_per_block)];
      const auto parts = static_cast<size_t>(stage_chunks_per_block);
      TRNCCL_CHECK(block.size() % parts == 0);
      const size_t per_part = block.size() / parts;
      const auto first =
          block.begin() +
          static_cast<std::ptrdiff_t>(
              static_cast<size_t>(chunk % stage_chunks_per_block) * per_part);
      chunks.insert(chunks.end(), first,
                    first + static_cast<std::ptrdiff_t>(per_part));
    });
    return chunks;
  }

  Place PlaceOf(const Place& place, const std::vector<int64_t>& chunks) const {
    if (place.buffer == Buffer::kScratch) {
      return {Buffer::kScratch, first_own_slot + place.slot * chunks_per_slot};
    }
    const StageBuffer& buffer =
        place.buffer == Buffer::kInput ? stage.source : stage.target;
    return {buffer.buffer, SlotOf(buffer, chunks, 0)};
  }

  void Mark(const Step& step, Step& marked) const {
    switch (stage.values) {
      case Stage::Values::kPassed:
        return;
      case Stage::Values::kFolded:
        marked.partial = step.partial || step.completes;
        return;
      case Stage::Values::kCompleted:
        // Whatever isn't complete yet was folded by an earlier stage.
        for (Operand& operand : marked.operands) operand.partial = true;
        marked.partial = !step.completes;
        marked.completes = step.completes;
        return;
    }
  }
};

Composer::Composer(int rank, const Limits& limits)
    : rank_(rank), first_stage_slot_(limits.slots) {
  program_.chunks_per_block = limits.chunks_per_block;
  program_.scratch_slots = limits.slots;
  program_.lanes.resize(1);
}

void Composer::Add(const Stage& stage) {
  const auto member = std::ranges::find(stage.group, rank_);
  if (member == stage.group.end()) return;
  const Program program =
      stage.build({.ranks = static_cast<int>(stage.group.size()),
                   .rank = static_cast<int>(member - stage.group.begin()),
                   .root = stage.root});
  TRNCCL_CHECK(program.lanes.size() == 1);
  Translation translation{
      .stage = stage,
      .stage_chunks_per_block = program.chunks_per_block,
      .stage_total =
          static_cast<int64_t>(stage.blocks.size()) * program.chunks_per_block,
      .first_own_slot = first_stage_slot_};
  if (program.scratch_slots > 0) {
    const size_t block_chunks = stage.blocks.front().size();
    for (const auto& block : stage.blocks) {
      TRNCCL_CHECK(block.size() == block_chunks);
    }
    translation.chunks_per_slot =
        static_cast<int64_t>(block_chunks) / program.chunks_per_block;
  }
  program_.scratch_slots = std::max(
      program_.scratch_slots,
      first_stage_slot_ + program.scratch_slots * translation.chunks_per_slot);
  for (const Step& step : program.lanes.front().steps) {
    Step translated = Translate(translation, step);
    if (translated.stores || !translated.send_to.empty()) {
      program_.lanes.front().steps.push_back(std::move(translated));
    }
  }
}

// The step in the words of the whole; one without effect stores and sends
// nothing.
Step Composer::Translate(const Translation& translation,
                         const Step& step) const {
  const std::vector<int64_t> chunks = translation.ChunksOf(step);
  Step translated;
  if (chunks.empty()) return translated;
  translated = step;
  translated.spans = Spans(chunks);
  for (Operand& operand : translated.operands) {
    if (operand.peer == Operand::kNoPeer) {
      operand.place = translation.PlaceOf(operand.place, chunks);
    } else {
      operand.peer = translation.stage.group[static_cast<size_t>(operand.peer)];
    }
  }
  if (step.stores) translated.store = translation.PlaceOf(step.store, chunks);
  for (int& peer : translated.send_to) {
    peer = translation.stage.group[static_cast<size_t>(peer)];
  }
  translated.completes = false;
  translated.partial = false;
  translation.Mark(step, translated);
  const Operand& first = translated.operands.front();
  if (translated.operands.size() == 1 && first.peer == Operand::kNoPeer &&
      first.place == translated.store && !translated.completes) {
    translated.stores = false;
  }
  return translated;
}

}  // namespace trnccl
