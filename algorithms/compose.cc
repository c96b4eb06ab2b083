// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/compose.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "algorithms/step_builder.h"
#include "ccl/base/check.h"

namespace trnccl {
namespace {

int64_t SlotOf(const StageBuffer& buffer, const std::vector<int64_t>& chunks) {
  if (buffer.buffer != Buffer::kScratch) return 0;
  const auto start = std::ranges::find(buffer.slots, chunks.front());
  // A step's chunks lie in consecutive slots.
  const auto [slots_end, chunks_end] =
      std::mismatch(start, buffer.slots.end(), chunks.begin(), chunks.end());
  TRNCCL_CHECK(chunks_end == chunks.end());
  return start - buffer.slots.begin();
}

}  // namespace

// From the words of a stage to those of the whole.
struct Composer::Translation {
  const Stage& stage;
  int64_t stage_chunks_per_block = 1;
  int64_t stage_total = 1;
  std::vector<int64_t> own_slots = {};  // where the builder's slots begin

  // Those of the whole in a chunk of the stage.
  std::span<const int64_t> PartsOf(int64_t chunk) const {
    const auto& block =
        stage.blocks[static_cast<size_t>(chunk / stage_chunks_per_block)];
    const auto parts = static_cast<size_t>(stage_chunks_per_block);
    TRNCCL_CHECK(block.size() % parts == 0);
    const size_t per_part = block.size() / parts;
    return std::span(block).subspan(
        static_cast<size_t>(chunk % stage_chunks_per_block) * per_part,
        per_part);
  }

  // The chunks that the stage's step names.
  std::vector<int64_t> ChunksOf(const Step& step) const {
    std::vector<int64_t> chunks;
    ForEachChunk(step, stage_total, [&](int64_t chunk) {
      const std::span<const int64_t> parts = PartsOf(chunk);
      chunks.insert(chunks.end(), parts.begin(), parts.end());
    });
    return chunks;
  }

  // Lays out the builder's slots by what the program keeps in them.
  void LayOutSlots(const Program& program, int64_t first) {
    std::vector<int64_t> lengths(static_cast<size_t>(program.scratch_slots),
                                 -1);
    const auto note = [&](const Step& step, const Place& place) {
      if (place.buffer != Buffer::kScratch) return;
      auto slot = static_cast<size_t>(place.slot);
      ForEachChunk(step, stage_total, [&](int64_t chunk) {
        const auto length = static_cast<int64_t>(PartsOf(chunk).size());
        int64_t& noted = lengths[slot++];
        TRNCCL_CHECK(noted == -1 || noted == length);
        noted = length;
      });
    };
    for (const Lane& lane : program.lanes) {
      for (const Step& step : lane.steps) {
        for (const Operand& operand : step.operands) {
          if (operand.peer == Operand::kNoPeer) note(step, operand.place);
        }
        if (step.stores) note(step, step.store);
      }
    }
    own_slots.push_back(first);
    for (const int64_t length : lengths) {
      own_slots.push_back(own_slots.back() + std::max<int64_t>(0, length));
    }
  }

  Place PlaceOf(const Place& place, const std::vector<int64_t>& chunks) const {
    if (place.buffer == Buffer::kScratch) {
      return {Buffer::kScratch, own_slots[static_cast<size_t>(place.slot)]};
    }
    const StageBuffer& buffer =
        place.buffer == Buffer::kInput ? stage.source : stage.target;
    return {buffer.buffer, SlotOf(buffer, chunks)};
  }

  void Mark(const Step& step, Step& marked) const {
    switch (stage.values) {
      case Stage::Values::kPassed:
        return;
      case Stage::Values::kFolded:
        marked.partial = step.partial || step.completes;
        return;
      case Stage::Values::kCompleted:
        if (PassesOnComplete(step)) return;
        // Whatever isn't complete yet was folded by an earlier stage.
        for (Operand& operand : marked.operands) operand.partial = true;
        marked.partial = !step.completes;
        marked.completes = step.completes;
        return;
    }
  }

  // Only a rank's own input is passed on before it's folded.
  static bool PassesOnComplete(const Step& step) {
    const Operand& first = step.operands.front();
    const bool is_input =
        first.peer == Operand::kNoPeer && first.place.buffer == Buffer::kInput;
    return step.operands.size() == 1 && !is_input && !step.partial;
  }
};

Composer::Composer(int rank, const Limits& limits)
    : rank_(rank), limits_(limits) {
  program_.chunks_per_block = limits.chunks_per_block;
  program_.scratch_slots = limits.slots + limits.own_slots;
  program_.lanes.resize(limits.lanes);
}

void Composer::Add(const Stage& stage) {
  const auto member = std::ranges::find(stage.group, rank_);
  if (member == stage.group.end()) return;
  const Program program =
      stage.build({.ranks = static_cast<int>(stage.group.size()),
                   .rank = static_cast<int>(member - stage.group.begin()),
                   .root = stage.root});
  Translation translation{
      .stage = stage,
      .stage_chunks_per_block = program.chunks_per_block,
      .stage_total =
          static_cast<int64_t>(stage.blocks.size()) * program.chunks_per_block};
  translation.LayOutSlots(program, limits_.slots + stage.first_own_slot);
  TRNCCL_CHECK(translation.own_slots.back() <= program_.scratch_slots);
  const bool one_lane = program.lanes.size() == 1;
  TRNCCL_CHECK(one_lane || program.lanes.size() == program_.lanes.size());
  for (size_t i = 0; i < program.lanes.size(); ++i) {
    const size_t lane = one_lane ? static_cast<size_t>(stage.lane) : i;
    for (const Step& step : program.lanes[i].steps) {
      Step translated = Translate(translation, step);
      if (translated.stores || !translated.send_to.empty()) {
        program_.lanes[lane].steps.push_back(std::move(translated));
      }
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
