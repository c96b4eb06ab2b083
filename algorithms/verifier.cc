// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/verifier.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/fold_rules.h"
#include "algorithms/fold_tree.h"
#include "algorithms/network.h"
#include "algorithms/pins.h"
#include "algorithms/rank_memory.h"
#include "algorithms/schedule_form.h"
#include "algorithms/spec.h"
#include "algorithms/vector_clock.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

using Aliasing = RankMemory::Aliasing;
using Cell = RankMemory::Cell;

constexpr int32_t kNone = RankMemory::kNone;

absl::Status Wrong(const std::string& text) {
  return absl::InternalError(text);
}

// A message on its links. A chunk that isn't reduced is in one rank's input
// alone, so its name says all; its tree is that rank's leaf.
struct Payload {
  std::vector<int32_t> trees;  // by chunk
  Firing sender;
  int64_t depth = 0;  // messages in the longest chain that ends with this one
  size_t untaken = 0;
  Pins::Reference reference = 0;
  VectorClocks::Snapshot clock = VectorClocks::kNothing;
};

// Clocks cost more than all the rest, and only an overwrite of memory that was
// sent by reference asks for them.
enum class Clocks { kOff, kOn };

class Proof {
 public:
  Proof(const Schedule& schedule, const Claim& claim, Aliasing aliasing,
        Clocks clocks);

  absl::StatusOr<Proven> Run();
  bool needs_clocks() const { return needs_clocks_; }

 private:
  absl::Status Fire(const Firing& firing);
  absl::Status NameChunks(const Step& step);
  absl::Status ReadOperands(const Firing& firing);
  absl::Status TakeMessage(const Firing& firing, const Operand& operand,
                           const Message& message, OperandValues& values);
  absl::Status ReadPlace(const Firing& firing, const Operand& operand,
                         OperandValues& values);
  absl::Status Store(const Firing& firing);
  absl::Status Unpin(const Firing& firing, Cell& cell);
  void Send(const Firing& firing);
  void PinSent(const Firing& firing, Pins::Reference reference);
  absl::Status CheckOutputs(int rank);
  absl::Status CheckHeardOfAll(int rank) const;
  Proven Count() const;

  int32_t NewPayload();
  int64_t& DepthOf(const Firing& firing) {
    return depths_[static_cast<size_t>(firing.lane * claim_.ranks +
                                       firing.rank)];
  }
  Shape ShapeOf(int rank) const {
    return {.ranks = claim_.ranks, .rank = rank, .root = claim_.root};
  }

  struct Traffic {
    int64_t chunks_sent = 0;
    int64_t chunks_received = 0;
    int64_t messages_sent = 0;
  };

  const Schedule& schedule_;
  const Claim& claim_;
  const Spec& spec_;
  const int64_t total_;  // chunks
  const bool has_clocks_;
  bool needs_clocks_ = false;
  Network network_;
  FoldRules rules_;
  VectorClocks clocks_;
  Pins pins_;
  std::vector<RankMemory> memories_;
  std::vector<Payload> payloads_;
  std::vector<int32_t> free_payloads_;
  std::vector<Traffic> traffic_;   // by rank
  std::vector<int64_t> depths_;    // by lane and rank
  std::vector<int64_t> named_by_;  // by chunk: the step naming it last
  int64_t fired_ = 0;

  // Of the step that fires.
  std::vector<int64_t> chunks_;
  std::vector<OperandValues> operands_;
  std::vector<int32_t> results_;     // trees by chunk
  std::vector<Cell*> stored_cells_;  // by chunk, empty if nothing is stored
};

Proof::Proof(const Schedule& schedule, const Claim& claim, Aliasing aliasing,
             Clocks clocks)
    : schedule_(schedule),
      claim_(claim),
      spec_(SpecOf(claim.collective)),
      total_(spec_.blocks(claim.ranks) *
             schedule.programs.front().chunks_per_block),
      has_clocks_(clocks == Clocks::kOn),
      network_(schedule),
      rules_({.ranks = claim.ranks,
              .chunks = total_,
              .reduces = spec_.reduces,
              .left_fold = claim.proofs.left_fold}),
      clocks_(claim.ranks,
              static_cast<int>(schedule.programs.front().lanes.size())),
      traffic_(static_cast<size_t>(claim.ranks)),
      depths_(static_cast<size_t>(claim.ranks) *
              schedule.programs.front().lanes.size()),
      named_by_(static_cast<size_t>(total_)) {
  for (int rank = 0; rank < claim.ranks; ++rank) {
    memories_.emplace_back(schedule.programs[static_cast<size_t>(rank)], spec_,
                           ShapeOf(rank), aliasing);
  }
}

absl::StatusOr<Proven> Proof::Run() {
  while (const std::optional<Firing> firing = network_.Next()) {
    const absl::Status status = Fire(*firing);
    if (status.ok()) continue;
    return Wrong(absl::StrCat("rank ", firing->rank, ", lane ", firing->lane,
                              ", step ", firing->index, ": ",
                              Dump(*firing->step), ": ",
                              std::string(status.message())));
  }
  RETURN_IF_ERROR(network_.Ended());
  for (int rank = 0; rank < claim_.ranks; ++rank) {
    RETURN_IF_ERROR(CheckOutputs(rank));
    if (claim_.collective == Collective::kBarrier) {
      RETURN_IF_ERROR(CheckHeardOfAll(rank));
    }
  }
  return Count();
}

absl::Status Proof::Fire(const Firing& firing) {
  const Step& step = *firing.step;
  RETURN_IF_ERROR(NameChunks(step));
  RETURN_IF_ERROR(ReadOperands(firing));
  ASSIGN_OR_RETURN(results_, rules_.Fold(step, chunks_, operands_));
  stored_cells_.clear();
  if (step.stores) RETURN_IF_ERROR(Store(firing));
  if (!step.send_to.empty()) Send(firing);
  return absl::OkStatus();
}

absl::Status Proof::NameChunks(const Step& step) {
  ++fired_;
  chunks_.clear();
  int64_t twice = kNone;
  ForEachChunk(step, total_, [&](int64_t chunk) {
    int64_t& named_by = named_by_[static_cast<size_t>(chunk)];
    if (named_by == fired_) twice = chunk;
    named_by = fired_;
    chunks_.push_back(chunk);
  });
  if (twice == kNone) return absl::OkStatus();
  return Wrong(absl::StrCat("names chunk ", twice, " twice"));
}

absl::Status Proof::ReadOperands(const Firing& firing) {
  operands_.resize(firing.step->operands.size());
  size_t messages = 0;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = firing.step->operands[i];
    OperandValues& values = operands_[i];
    values.trees.clear();
    values.cells.clear();
    values.raw = false;
    if (operand.peer == Operand::kNoPeer) {
      RETURN_IF_ERROR(ReadPlace(firing, operand, values));
    } else {
      RETURN_IF_ERROR(TakeMessage(firing, operand,
                                  network_.messages()[messages++], values));
    }
  }
  return absl::OkStatus();
}

absl::Status Proof::TakeMessage(const Firing& firing, const Operand& operand,
                                const Message& message, OperandValues& values) {
  Payload& payload = payloads_[static_cast<size_t>(message.payload)];
  const Step& sent = *payload.sender.step;
  if (sent.spans != firing.step->spans) {
    std::vector<int64_t> sent_chunks;
    ForEachChunk(sent, total_,
                 [&](int64_t chunk) { sent_chunks.push_back(chunk); });
    if (sent_chunks != chunks_) {
      return Wrong(absl::StrCat("takes other chunks than rank ", operand.peer,
                                " sent in its step ", payload.sender.index,
                                ": ", absl::StrJoin(sent_chunks, " ")));
    }
  }
  if (operand.partial != sent.partial) {
    return Wrong(absl::StrCat("and step ", payload.sender.index, " of rank ",
                              operand.peer,
                              " disagree on whether its message is partial"));
  }
  int64_t& depth = DepthOf(firing);
  depth = std::max(depth, payload.depth);
  traffic_[static_cast<size_t>(firing.rank)].chunks_received +=
      static_cast<int64_t>(chunks_.size());
  if (has_clocks_) {
    clocks_.Learn({firing.rank, firing.lane},
                  {.rank = operand.peer, .index = payload.sender.index},
                  payload.clock);
  }
  if (claim_.proofs.by_reference) {
    pins_.Taken(payload.reference, message.receiver, firing);
  }
  if (--payload.untaken > 0) {
    values.trees = payload.trees;
    return absl::OkStatus();
  }
  std::swap(values.trees, payload.trees);
  clocks_.Release(payload.clock);
  free_payloads_.push_back(message.payload);
  return absl::OkStatus();
}

absl::Status Proof::ReadPlace(const Firing& firing, const Operand& operand,
                              OperandValues& values) {
  RankMemory& memory = memories_[static_cast<size_t>(firing.rank)];
  const bool is_input = operand.place.buffer == Buffer::kInput;
  values.raw = is_input && spec_.reduces;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    ASSIGN_OR_RETURN(const RankMemory::Held held,
                     memory.Read({.place = operand.place,
                                  .index = static_cast<int64_t>(i),
                                  .chunk = chunks_[i],
                                  .lane = firing.lane}));
    const bool is_partial = !is_input && held.value.partial;
    if (is_partial != operand.partial) {
      return Wrong(absl::StrCat("reads chunk ", chunks_[i], " as ",
                                operand.partial ? "partial" : "not partial",
                                ", which it isn't"));
    }
    values.trees.push_back(is_input ? FoldTrees::Leaf(firing.rank)
                                    : held.value.tree);
    values.cells.push_back(held.cell);
  }
  return absl::OkStatus();
}

absl::Status Proof::Store(const Firing& firing) {
  const Step& step = *firing.step;
  RankMemory& memory = memories_[static_cast<size_t>(firing.rank)];
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const RankMemory::Access access = {.place = step.store,
                                       .index = static_cast<int64_t>(i),
                                       .chunk = chunks_[i],
                                       .lane = firing.lane};
    ASSIGN_OR_RETURN(Cell * cell, memory.Find(access));
    const OperandValues& first = operands_.front();
    const bool is_unchanged = operands_.size() == 1 && !first.cells.empty() &&
                              first.cells[i] == cell && !first.raw;
    if (!is_unchanged) RETURN_IF_ERROR(Unpin(firing, *cell));
    RETURN_IF_ERROR(memory.Store(
        *cell, {.tree = results_[i], .partial = step.partial}, access));
    stored_cells_.push_back(cell);
  }
  return absl::OkStatus();
}

absl::Status Proof::Unpin(const Firing& firing, Cell& cell) {
  if (cell.pins == Pins::kNone) return absl::OkStatus();
  needs_clocks_ = true;
  if (has_clocks_) {
    const absl::Status status = pins_.CheckRead(cell.pins, firing, clocks_);
    if (!status.ok()) {
      return Wrong(absl::StrCat("overwrites chunk ", cell.chunk, " ",
                                std::string(status.message())));
    }
  }
  cell.pins = Pins::kNone;
  return absl::OkStatus();
}

void Proof::Send(const Firing& firing) {
  const Step& step = *firing.step;
  const size_t receivers = step.send_to.size();
  const int32_t index = NewPayload();
  Payload& payload = payloads_[static_cast<size_t>(index)];
  payload.trees = results_;
  payload.sender = firing;
  payload.depth = DepthOf(firing) + 1;
  payload.untaken = receivers;
  payload.clock = has_clocks_ ? clocks_.Take({firing.rank, firing.lane})
                              : VectorClocks::kNothing;
  if (claim_.proofs.by_reference) {
    payload.reference = pins_.Send(firing);
    PinSent(firing, payload.reference);
  }
  Traffic& traffic = traffic_[static_cast<size_t>(firing.rank)];
  traffic.messages_sent += static_cast<int64_t>(receivers);
  traffic.chunks_sent += static_cast<int64_t>(receivers * chunks_.size());
  network_.Send(firing, index);
}

// What is passed on may be read where it came from or where it's stored.
void Proof::PinSent(const Firing& firing, Pins::Reference reference) {
  for (Cell* cell : stored_cells_) pins_.Pin(cell->pins, reference, firing);
  if (operands_.size() != 1) return;
  for (size_t i = 0; i < operands_.front().cells.size(); ++i) {
    Cell* const cell = operands_.front().cells[i];
    const bool is_pinned = !stored_cells_.empty() && stored_cells_[i] == cell;
    if (cell != nullptr && !is_pinned) {
      pins_.Pin(cell->pins, reference, firing);
    }
  }
}

absl::Status Proof::CheckOutputs(int rank) {
  RankMemory& memory = memories_[static_cast<size_t>(rank)];
  const BlockRange blocks = spec_.output(ShapeOf(rank));
  const int64_t chunks_per_block = schedule_.programs.front().chunks_per_block;
  for (int64_t i = 0; i < blocks.count * chunks_per_block; ++i) {
    const int64_t block = blocks.first + i / chunks_per_block * blocks.stride;
    const int64_t chunk = block * chunks_per_block + i % chunks_per_block;
    ASSIGN_OR_RETURN(const Cell* cell,
                     memory.Find({.place = {Buffer::kOutput}, .chunk = chunk}));
    if (!cell->stored) {
      return Wrong(
          absl::StrCat("rank ", rank, " ends without output chunk ", chunk));
    }
    const int64_t contributions = rules_.Contributions(cell->value.tree);
    if (spec_.reduces && contributions != claim_.ranks) {
      return Wrong(absl::StrCat("rank ", rank, " ends with ", contributions,
                                " of ", claim_.ranks,
                                " contributions in output chunk ", chunk));
    }
  }
  return absl::OkStatus();
}

absl::Status Proof::CheckHeardOfAll(int rank) const {
  const auto lanes = static_cast<int>(schedule_.programs.front().lanes.size());
  for (int peer = 0; peer < claim_.ranks; ++peer) {
    bool heard = peer == rank;
    for (int lane = 0; lane < lanes; ++lane) {
      heard |= clocks_.Knows({rank, lane}, {.rank = peer, .index = 0});
    }
    if (!heard) {
      return Wrong(absl::StrCat("rank ", rank, " ends without having heard of ",
                                "rank ", peer));
    }
  }
  return absl::OkStatus();
}

Proven Proof::Count() const {
  Proven proven;
  for (int64_t depth : depths_) proven.rounds = std::max(proven.rounds, depth);
  for (const Traffic& traffic : traffic_) {
    proven.most_chunks_sent =
        std::max(proven.most_chunks_sent, traffic.chunks_sent);
    proven.most_chunks_received =
        std::max(proven.most_chunks_received, traffic.chunks_received);
    proven.most_messages_sent =
        std::max(proven.most_messages_sent, traffic.messages_sent);
  }
  return proven;
}

int32_t Proof::NewPayload() {
  if (free_payloads_.empty()) {
    free_payloads_.push_back(static_cast<int32_t>(payloads_.size()));
    payloads_.emplace_back();
  }
  const int32_t index = free_payloads_.back();
  free_payloads_.pop_back();
  return index;
}

absl::StatusOr<Proven> Prove(const Schedule& schedule, const Claim& claim,
                             Aliasing aliasing) {
  const Spec& spec = SpecOf(claim.collective);
  // Reductions in place overwrite inputs that they have sent.
  const bool surely = claim.collective == Collective::kBarrier ||
                      (claim.proofs.by_reference && spec.reduces &&
                       aliasing == Aliasing::kInPlace);
  Proof proof(schedule, claim, aliasing, surely ? Clocks::kOn : Clocks::kOff);
  absl::StatusOr<Proven> proven = proof.Run();
  if (!proven.ok() || surely || !proof.needs_clocks()) return proven;
  return Proof(schedule, claim, aliasing, Clocks::kOn).Run();
}

}  // namespace

absl::StatusOr<Proven> Verify(const Schedule& schedule, const Claim& claim) {
  RETURN_IF_ERROR(CheckForm(
      schedule, {.ranks = claim.ranks,
                 .blocks = SpecOf(claim.collective).blocks(claim.ranks)}));
  if (claim.proofs.in_place) {
    RETURN_IF_ERROR(Prove(schedule, claim, Aliasing::kInPlace).status());
  }
  return Prove(schedule, claim, Aliasing::kOutOfPlace);
}

Schedule BuildSchedule(const Algorithm& algorithm, Shape shape) {
  Schedule schedule;
  schedule.programs.reserve(static_cast<size_t>(shape.ranks));
  for (shape.rank = 0; shape.rank < shape.ranks; ++shape.rank) {
    schedule.programs.push_back(algorithm.build(shape));
  }
  return schedule;
}

}  // namespace trnccl
