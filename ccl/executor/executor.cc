// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/executor/executor.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ccl/base/check.h"

namespace trnccl {
namespace {

std::vector<int> Unique(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

absl::Status Executor::Start(const Job& job) {
  job_ = job;
  const Plan& plan = *job.plan;
  const CompiledProgram& program = *plan.program;
  element_bytes_ = ElementBytes(job.call.type);
  wide_ = job.wide_partials;
  copies_ = job.folder == nullptr;
  slot_bytes_ = static_cast<size_t>(plan.slot_count) *
                (wide_ ? sizeof(float) : element_bytes_);
  const size_t slots = static_cast<size_t>(plan.sizes.slots);
  const size_t scratch_of_slot =
      slot_bytes_ * static_cast<size_t>(program.source.scratch_slots);
  if (scratch_of_slot * slots > scratch_bytes_) {
    scratch_.reset(new (std::nothrow) std::byte[scratch_of_slot * slots]);
    scratch_bytes_ = scratch_ == nullptr ? 0 : scratch_of_slot * slots;
    if (scratch_ == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "rank ", shape_.rank, ": no memory for ", scratch_of_slot * slots,
          " bytes of scratch of ", DescribeCall(job.envelope),
          "; a smaller TRNCCL_SEGMENT_BYTES needs less"));
    }
  }
  MakeRoom(plan);
  sent_by_reference_.clear();
  active_slots_ = 0;
  for (size_t i = 0; i < slots; ++i) {
    slots_[i].scratch = scratch_.get() + i * scratch_of_slot;
    slots_[i].active = false;
    if (static_cast<int64_t>(i) < plan.sizes.segments)
      BeginSegment(&slots_[i], static_cast<int64_t>(i));
  }
  return absl::OkStatus();
}

void Executor::MakeRoom(const Plan& plan) {
  const CompiledProgram& program = *plan.program;
  const size_t slots = static_cast<size_t>(plan.sizes.slots);
  if (slots_.size() < slots) slots_.resize(slots);
  if (next_step_.size() < slots * program.lanes())
    next_step_.resize(slots * program.lanes());
  if (messages_.size() < program.most_operands) {
    messages_.resize(program.most_operands);
    fold_operands_.resize(program.most_operands);
  }
  if (results_.size() <= program.sends.size()) {
    slices_.resize(program.sends.size());
    results_.resize(program.sends.size() + 1);
  }
  if (links_.size() < program.most_peers) links_.resize(program.most_peers);
}

void Executor::BeginSegment(Slot* slot, int64_t segment) {
  const Plan& plan = *job_.plan;
  slot->segment = segment;
  slot->shift = 0;
  if (!plan.even) {
    const CallLayout layout =
        LayoutOf(job_.call, shape_, plan.program->source.chunks_per_block);
    ResolvePieces(*plan.program, layout,
                  {.index = segment, .segment_count = plan.sizes.segment_count},
                  &slot->own_table);
    slot->table = &slot->own_table;
  } else if (segment == plan.sizes.segments - 1) {
    slot->table = &plan.last;
  } else {
    slot->table = &plan.full;
    slot->shift = segment * plan.sizes.segment_count;
  }
  const int lanes = plan.program->lanes();
  const size_t first = static_cast<size_t>((slot - slots_.data()) * lanes);
  for (int lane = 0; lane < lanes; ++lane)
    next_step_[first + lane] = lane == 0 ? 0 : plan.program->lane_end[lane - 1];
  slot->active = true;
  ++active_slots_;
}

void Executor::FinishSegment(Slot* slot) {
  slot->active = false;
  --active_slots_;
  const int64_t next = slot->segment + job_.plan->sizes.slots;
  if (next < job_.plan->sizes.segments) BeginSegment(slot, next);
}

Executor::Executor(const Shape& shape, const Routes& routes) : shape_(shape) {
  for (const Route& route : routes) {
    const Transport* transport = route.transport;
    if (transport != nullptr && transport->traits().delivers &&
        std::ranges::find(delivering_, transport) == delivering_.end())
      delivering_.push_back(transport);
  }
}

Advanced Executor::Advance() {
  Advanced result = Advanced::kNothing;
  for (int i = 0; i < job_.plan->sizes.slots && active_slots_ > 0; ++i) {
    const Advanced slot = AdvanceSlot(i);
    if (slot == Advanced::kFailed) return slot;
    if (slot == Advanced::kSomething) result = slot;
  }
  if (active_slots_ == 0 && AllReleased() && AllSent()) return Advanced::kDone;
  return result;
}

Advanced Executor::AdvanceSlot(int slot_index) {
  Slot& slot = slots_[slot_index];
  if (!slot.active) return Advanced::kNothing;
  const CompiledProgram& program = *job_.plan->program;
  const int lanes = program.lanes();
  Advanced result = Advanced::kNothing;
  int finished = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    uint32_t& next = next_step_[slot_index * lanes + lane];
    while (next < program.lane_end[lane]) {
      const Advanced step =
          TryStep(slot_index, slot_index * lanes + lane, next);
      if (step == Advanced::kFailed) return step;
      if (step == Advanced::kNothing) break;
      result = step;
      ++next;
    }
    finished += next == program.lane_end[lane] ? 1 : 0;
  }
  if (finished == lanes) {
    FinishSegment(&slot);
    result = Advanced::kSomething;
  }
  return result;
}

Advanced Executor::TryStep(int slot_index, int lane, uint32_t step_index) {
  const Slot& slot = slots_[slot_index];
  const CompiledStep& step = job_.plan->program->steps[step_index];
  const PieceTable::Range& range = slot.table->steps[step_index];
  // A pair makes the segments that its count needs, as both its ranks know;
  // other pairs of this rank may need more.
  if (range.message_count == 0 && slot.segment > 0 &&
      job_.call.collective == Collective::kAllToAllV)
    return Advanced::kSomething;
  if (!PeekOperands(slot, step_index, lane))
    return status_.ok() ? Advanced::kNothing : Advanced::kFailed;
  if (step.sends == 0) {
    RunPieces(slot, step, range);
  } else {
    Outgoing message{
        .envelope = EnvelopeTo(step.first_receiver),
        .bytes = static_cast<size_t>(range.message_count) * WireBytes(step)};
    FindReference(slot, step, range, &message);
    if (!ReserveSends(step, lane, message)) return Advanced::kNothing;
    RunPieces(slot, step, range);
    Deliver(step, lane, message);
  }
  ReleaseOperands(step, lane);
  return Advanced::kSomething;
}

bool Executor::PeekOperands(const Slot& slot, uint32_t step_index, int lane) {
  const CompiledStep& step = job_.plan->program->steps[step_index];
  const PieceTable::Range& range = slot.table->steps[step_index];
  const CompiledOperand* operands =
      job_.plan->program->operands.data() + step.first_operand;
  for (uint32_t i = 0; i < step.operands; ++i) {
    const CompiledOperand& operand = operands[i];
    if (operand.kind != CompiledOperand::kMessage) continue;
    const size_t bytes =
        static_cast<size_t>(range.message_count) * WireBytes(operand);
    Expected expected{.bytes = bytes};
    if (operand.delivers) FindLanding(slot, step, range, &expected);
    const Incoming* message = operand.transport->Peek(
        operand.transport->Link(operand.peer_index, lane), &expected);
    if (message == nullptr) return false;
    if (message->bytes != bytes ||
        message->envelope != EnvelopeFrom(operand.peer)) [[unlikely]] {
      status_ = UnexpectedMessage(
          {.rank = shape_.rank, .envelope = EnvelopeFrom(operand.peer)},
          {.rank = operand.peer, .envelope = message->envelope},
          {.bytes = message->bytes, .expected_bytes = bytes});
      return false;
    }
    messages_[i] = message;
  }
  return true;
}

// A step whose whole message lies in a row in registered memory is sent from
// there. What this rank alone knows decides it: it changes only how the message
// travels.
void Executor::FindReference(const Slot& slot, const CompiledStep& step,
                             const PieceTable::Range& range,
                             Outgoing* message) const {
  const CompiledProgram& program = *job_.plan->program;
  if (!program.algorithm->proofs.by_reference || range.pieces != 1 || wide_)
    return;
  const Transport* transport = program.sends[step.first_send].transport;
  const Traits& traits = transport->traits();
  if (step.sends != 1 || !traits.by_reference ||
      message->bytes <= traits.inline_bytes)
    return;
  const CompiledOperand& operand = program.operands[step.first_operand];
  const Piece& piece = slot.table->pieces[range.first];
  const BufferRegions* regions = nullptr;
  const std::byte* source = nullptr;
  if (step.stores && step.store.buffer == Buffer::kOutput) {
    regions = &job_.output_regions;
    source = job_.call.output + OutputBytes(slot, piece);
  } else if (step.operands == 1 && !step.completes &&
             operand.kind == CompiledOperand::kOutput) {
    regions = &job_.output_regions;
    source = job_.call.output + OutputBytes(slot, piece);
  } else if (step.operands == 1 && !step.completes &&
             operand.kind == CompiledOperand::kInput &&
             (copies_ || !job_.folder->has_prepare())) {
    regions = &job_.input_regions;
    source = job_.call.input + InputBytes(slot, piece);
  }
  if (regions == nullptr) return;
  const Region* region = regions->Of(transport);
  if (region == nullptr || !region->by_reference()) return;
  message->region = region;
  message->offset = static_cast<size_t>(source - region->base());
}

void Executor::FindLanding(const Slot& slot, const CompiledStep& step,
                           const PieceTable::Range& range,
                           Expected* expected) const {
  const CompiledProgram& program = *job_.plan->program;
  if (step.operands != 1 || !step.stores || range.pieces != 1 ||
      step.store.buffer != Buffer::kOutput)
    return;
  const CompiledOperand& operand = program.operands[step.first_operand];
  if (!copies_ && !IsPlainCopy(step, operand)) return;
  const Region* region = job_.output_regions.Of(operand.transport);
  if (region == nullptr) return;
  const Piece& piece = slot.table->pieces[range.first];
  expected->landing = job_.call.output + OutputBytes(slot, piece);
  expected->region = region;
}

std::span<const LinkId> Executor::LinksOf(const CompiledSend& send, int lane) {
  const uint32_t* peers =
      job_.plan->program->peer_indices.data() + send.first_peer;
  for (uint32_t i = 0; i < send.peers; ++i)
    links_[i] = send.transport->Link(peers[i], lane);
  return {links_.data(), send.peers};
}

// Room for the message on every link, or for a message by reference just the
// knowledge that there is room.
bool Executor::ReserveSends(const CompiledStep& step, int lane,
                            const Outgoing& message) {
  const bool by_reference = message.region != nullptr;
  for (uint32_t i = 0; i < step.sends; ++i) {
    const CompiledSend& send = job_.plan->program->sends[step.first_send + i];
    std::byte* slice = send.transport->Reserve(
        LinksOf(send, lane), by_reference ? 0 : message.bytes);
    if (slice == nullptr) return false;
    slices_[i] = by_reference ? nullptr : slice;
  }
  return true;
}

void Executor::Deliver(const CompiledStep& step, int lane,
                       const Outgoing& message) {
  for (uint32_t i = 0; i < step.sends; ++i) {
    const CompiledSend& send = job_.plan->program->sends[step.first_send + i];
    const auto links = LinksOf(send, lane);
    TRNCCL_CHECK(send.transport->Send(links, message));
    if (message.region == nullptr) continue;
    for (const LinkId link : links)
      sent_by_reference_.push_back({send.transport, link});
  }
}

void Executor::ReleaseOperands(const CompiledStep& step, int lane) {
  const CompiledOperand* operands =
      job_.plan->program->operands.data() + step.first_operand;
  for (uint32_t i = 0; i < step.operands; ++i) {
    const CompiledOperand& operand = operands[i];
    if (operand.kind == CompiledOperand::kMessage)
      operand.transport->Release(
          operand.transport->Link(operand.peer_index, lane));
  }
}

bool Executor::AllSent() const {
  return std::ranges::all_of(
      delivering_, [](const Transport* t) { return t->unsent() == 0; });
}

bool Executor::AllReleased() {
  while (!sent_by_reference_.empty()) {
    const Sent& sent = sent_by_reference_.back();
    if (sent.transport->Pending(sent.link) != 0) return false;
    sent_by_reference_.pop_back();
  }
  return true;
}

size_t Executor::InputBytes(const Slot& slot, const Piece& piece) const {
  return static_cast<size_t>(piece.input_offset + slot.shift) * element_bytes_;
}

size_t Executor::OutputBytes(const Slot& slot, const Piece& piece) const {
  return static_cast<size_t>(piece.output_offset + slot.shift) * element_bytes_;
}

std::byte* Executor::ScratchAt(const Slot& slot, int64_t index,
                               const Piece& piece) const {
  return slot.scratch +
         static_cast<size_t>(index + piece.slot_index) * slot_bytes_;
}

void Executor::RunPieces(const Slot& slot, const CompiledStep& step,
                         const PieceTable::Range& range) {
  const Piece* pieces = slot.table->pieces.data() + range.first;
  for (uint32_t i = 0; i < range.pieces; ++i) RunPiece(slot, step, pieces[i]);
}

void Executor::RunPiece(const Slot& slot, const CompiledStep& step,
                        const Piece& piece) {
  const CompiledOperand* operands =
      job_.plan->program->operands.data() + step.first_operand;
  for (uint32_t i = 0; i < step.operands; ++i)
    fold_operands_[i] = OperandAt(slot, operands[i], piece, messages_[i]);
  size_t results = 0;
  if (step.stores) {
    results_[results++] = step.store.buffer == Buffer::kOutput
                              ? job_.call.output + OutputBytes(slot, piece)
                              : ScratchAt(slot, step.store.slot, piece);
  }
  const size_t wire_bytes = WireBytes(step);
  const bool sends_slice = step.sends > 0 && slices_[0] != nullptr;
  for (uint32_t i = 0; sends_slice && i < step.sends; ++i) {
    results_[results++] =
        slices_[i] + static_cast<size_t>(piece.message_offset) * wire_bytes;
  }
  if (results == 0) return;
  const auto count = static_cast<size_t>(piece.count);
  const bool plain = copies_ || IsPlainCopy(step, operands[0]);
  if (step.operands == 1 && plain) {
    for (size_t i = 0; i < results; ++i)
      if (results_[i] != fold_operands_[0].data)
        std::memcpy(results_[i], fold_operands_[0].data, count * wire_bytes);
    return;
  }
  const size_t folded = std::min<size_t>(results, 2);
  job_.folder->Fold({.operands = {fold_operands_.data(), step.operands},
                     .results = {results_.data(), folded},
                     .count = count,
                     .finish = step.completes,
                     .wide_result = wide_ && step.partial});
  for (size_t i = folded; i < results; ++i)
    std::memcpy(results_[i], results_[1], count * wire_bytes);
}

FoldOperand Executor::OperandAt(const Slot& slot,
                                const CompiledOperand& operand,
                                const Piece& piece,
                                const Incoming* message) const {
  FoldOperand result{.raw = operand.raw, .wide = wide_ && operand.partial};
  switch (operand.kind) {
    case CompiledOperand::kMessage:
      result.data = message->data + static_cast<size_t>(piece.message_offset) *
                                        WireBytes(operand);
      break;
    case CompiledOperand::kInput:
      result.data = job_.call.input + InputBytes(slot, piece);
      break;
    case CompiledOperand::kOutput:
      result.data = job_.call.output + OutputBytes(slot, piece);
      break;
    case CompiledOperand::kScratch:
      result.data = ScratchAt(slot, operand.slot, piece);
      break;
  }
  return result;
}

// Whether passing one operand through changes nothing.
bool Executor::IsPlainCopy(const CompiledStep& step,
                           const CompiledOperand& operand) const {
  return !(operand.raw && job_.folder->has_prepare()) &&
         !(step.completes && job_.folder->has_finish()) &&
         (!wide_ || operand.partial == step.partial);
}

Envelope Executor::EnvelopeTo(int peer) const {
  if (job_.call.collective != Collective::kAllToAllV) return job_.envelope;
  Envelope envelope = job_.envelope;
  envelope.words[2] =
      static_cast<uint64_t>(job_.call.input_counts.counts[peer]);
  return envelope;
}

Envelope Executor::EnvelopeFrom(int peer) const {
  if (job_.call.collective != Collective::kAllToAllV) return job_.envelope;
  Envelope envelope = job_.envelope;
  envelope.words[2] =
      static_cast<uint64_t>(job_.call.output_counts.counts[peer]);
  return envelope;
}

template <typename Visit>
void Executor::ForEachWaitingStep(Visit visit) const {
  const CompiledProgram& program = *job_.plan->program;
  const int lanes = program.lanes();
  for (int i = 0; i < job_.plan->sizes.slots; ++i) {
    for (int lane = 0; slots_[i].active && lane < lanes; ++lane) {
      const uint32_t next = next_step_[i * lanes + lane];
      if (next < program.lane_end[lane]) visit(next, i * lanes + lane);
    }
  }
}

std::vector<int> Executor::WaitsFor() const {
  std::vector<int> ranks;
  const CompiledProgram& program = *job_.plan->program;
  ForEachWaitingStep([&](uint32_t index, int lane) {
    const CompiledStep& step = program.steps[index];
    for (uint32_t k = 0; k < step.operands; ++k) {
      const CompiledOperand& operand = program.operands[step.first_operand + k];
      if (operand.kind == CompiledOperand::kMessage &&
          operand.transport->Peek(
              operand.transport->Link(operand.peer_index, lane), nullptr) ==
              nullptr)
        ranks.push_back(operand.peer);
    }
  });
  return Unique(std::move(ranks));
}

std::vector<int> Executor::Takers() const {
  std::vector<int> ranks;
  ForEachWaitingStep([&](uint32_t index, int) {
    for (const Lane& lane : job_.plan->program->source.lanes) {
      if (index < lane.steps.size()) {
        const auto& receivers = lane.steps[index].send_to;
        ranks.insert(ranks.end(), receivers.begin(), receivers.end());
        return;
      }
      index -= static_cast<uint32_t>(lane.steps.size());
    }
  });
  return Unique(std::move(ranks));
}

std::string Executor::DescribeWait() const {
  const PlanSizes& sizes = job_.plan->sizes;
  int64_t segment = sizes.segments;
  for (int i = 0; i < sizes.slots; ++i)
    if (slots_[i].active) segment = std::min(segment, slots_[i].segment);
  const std::vector<int> ranks = WaitsFor();
  const std::vector<int> takers = Takers();
  std::string whom = "its peers to read what they were sent by reference";
  if (!ranks.empty()) {
    whom = absl::StrCat("data of rank ", absl::StrJoin(ranks, ", "));
  } else if (!takers.empty()) {
    whom = absl::StrCat("rank ", absl::StrJoin(takers, ", "),
                        " to take what was sent");
  }
  const std::string_view name = job_.plan->program->algorithm->name;
  return absl::StrCat("waits for ", whom, " (algorithm ", std::string(name),
                      ", segment ", segment, " of ", sizes.segments, ")");
}

}  // namespace trnccl
