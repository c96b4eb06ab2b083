// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/executor/short_program.h"

#include <cstring>
#include <span>

#include "ccl/executor/call.h"

namespace trnccl {

std::optional<ShortProgram> ShortProgram::Make(const Plan& plan, DataType type,
                                               const Folder* folder) {
  const CompiledProgram& program = *plan.program;
  if (!plan.even || plan.sizes.segments != 1 || program.lanes() != 1 ||
      program.source.scratch_slots != 0 ||
      program.most_operands > kMaxOperands) {
    return std::nullopt;
  }
  ShortProgram result;
  for (size_t i = 0; i < program.steps.size(); ++i)
    if (!result.Add(plan, i, ElementBytes(type), folder)) return std::nullopt;
  if (result.transport_ == nullptr) return std::nullopt;
  result.Point();
  return result;
}

void ShortProgram::Point() {
  size_t operands = operands_.size();
  size_t links = links_.size();
  for (size_t i = steps_.size(); i-- > 0;) {
    ShortStep& step = steps_[i];
    step.operands = {operands_.data() + step.first_operand,
                     operands - step.first_operand};
    step.links = {links_.data() + step.first_link, links - step.first_link};
    operands = step.first_operand;
    links = step.first_link;
    for (const ShortOperand& operand : step.operands)
      step.takes |= operand.kind == CompiledOperand::kMessage;
  }
}

bool ShortProgram::Uses(Transport* transport) {
  if (transport_ == nullptr) {
    transport_ = transport;
    delivers_ = transport->traits().delivers;
  }
  return transport_ == transport;
}

bool ShortProgram::Add(const Plan& plan, size_t step_index,
                       size_t element_bytes, const Folder* folder) {
  const CompiledProgram& program = *plan.program;
  const CompiledStep& step = program.steps[step_index];
  const PieceTable::Range& range = plan.last.steps[step_index];
  if (range.pieces > 1 || step.sends > 1 || step.partial) return false;
  const Piece piece =
      range.pieces == 1 ? plan.last.pieces[range.first] : Piece{};
  const bool raw =
      step.operands > 0 && program.operands[step.first_operand].raw;
  const bool changes =
      folder != nullptr && ((raw && folder->has_prepare()) ||
                            (step.completes && folder->has_finish()));
  ShortStep made = {
      .first_operand = static_cast<uint32_t>(operands_.size()),
      .first_link = static_cast<uint32_t>(links_.size()),
      .folds = step.operands > 1 || changes,
      .finishes = step.completes,
      .stores = step.stores,
      .store_offset = static_cast<size_t>(piece.output_offset) * element_bytes,
      .count = static_cast<size_t>(piece.count),
      .bytes = static_cast<size_t>(piece.count) * element_bytes};
  if (made.bytes > kMaxMessageBytes) return false;
  if (!AddOperands(program, step, piece, element_bytes)) return false;
  if (step.sends == 1) {
    const CompiledSend& send = program.sends[step.first_send];
    if (!Uses(send.transport)) return false;
    const Step& source = program.source.lanes[0].steps[step_index];
    for (uint32_t i = 0; i < send.peers; ++i) {
      links_.push_back(
          transport_->Link(program.peer_indices[send.first_peer + i], 0));
      receivers_.push_back(source.send_to[i]);
    }
  }
  steps_.push_back(made);
  return true;
}

bool ShortProgram::AddOperands(const CompiledProgram& program,
                               const CompiledStep& step, const Piece& piece,
                               size_t element_bytes) {
  for (uint32_t i = 0; i < step.operands; ++i) {
    const CompiledOperand& operand = program.operands[step.first_operand + i];
    if (operand.partial) return false;
    ShortOperand made = {
        .kind = operand.kind, .raw = operand.raw, .peer = operand.peer};
    if (operand.kind == CompiledOperand::kMessage) {
      if (!Uses(operand.transport)) return false;
      made.link = transport_->Link(operand.peer_index, 0);
    } else {
      const int64_t elements = operand.kind == CompiledOperand::kInput
                                   ? piece.input_offset
                                   : piece.output_offset;
      made.offset = static_cast<size_t>(elements) * element_bytes;
    }
    operands_.push_back(made);
  }
  return true;
}

inline bool ShortRun::PeekOperands(const Step& step) {
  FoldOperand* folded = folded_.data();
  for (const Operand& operand : step.operands) {
    folded->raw = operand.raw;
    if (operand.kind == CompiledOperand::kMessage) {
      const Incoming* message =
          program_->transport_->Peek(operand.link, nullptr);
      if (message == nullptr) return false;
      if (message->bytes != step.bytes || message->envelope != envelope_)
          [[unlikely]]
        return Refuse(operand, *message, step.bytes);
      folded->data = message->data;
    } else {
      const bool output = operand.kind == CompiledOperand::kOutput;
      folded->data = buffers_[output ? 1 : 0] + operand.offset;
    }
    ++folded;
  }
  return true;
}

[[gnu::noinline]] bool ShortRun::Refuse(const Operand& operand,
                                        const Incoming& message,
                                        size_t expected_bytes) {
  status_ = UnexpectedMessage(
      {.rank = rank_, .envelope = envelope_},
      {.rank = operand.peer, .envelope = message.envelope},
      {.bytes = message.bytes, .expected_bytes = expected_bytes});
  return false;
}

inline void ShortRun::Work(const Step& step, std::byte* slice) {
  if (!step.folds) {
    const void* data = folded_[0].data;
    std::byte* stored = buffers_[1] + step.store_offset;
    if (slice != nullptr) std::memcpy(slice, data, step.bytes);
    if (step.stores && stored != data) std::memcpy(stored, data, step.bytes);
    return;
  }
  void* results[2];
  size_t count = 0;
  if (step.stores) results[count++] = buffers_[1] + step.store_offset;
  if (slice != nullptr) results[count++] = slice;
  folder_->Fold({.operands = {folded_.data(), step.operands.size()},
                 .results = {results, count},
                 .count = step.count,
                 .finish = step.finishes});
}

inline bool ShortRun::TryStep(const Step& step) {
  if (!PeekOperands(step)) return false;
  Transport& transport = *program_->transport_;
  std::byte* slice = nullptr;
  if (!step.links.empty()) {
    slice = transport.Reserve(step.links, step.bytes);
    if (slice == nullptr) return false;
  }
  if (step.bytes > 0) Work(step, slice);
  if (slice != nullptr)
    transport.Send(step.links, {.envelope = envelope_, .bytes = step.bytes});
  if (!step.takes) return true;
  for (const Operand& operand : step.operands) {
    if (operand.kind == CompiledOperand::kMessage)
      transport.Release(operand.link);
  }
  return true;
}

Advanced ShortRun::Advance() {
  const Step* const end = program_->steps_.data() + program_->steps_.size();
  const Step* const begin = next_step_;
  while (next_step_ != end && TryStep(*next_step_)) ++next_step_;
  if (next_step_ == end &&
      (!program_->delivers_ || program_->transport_->unsent() == 0))
    return Advanced::kDone;
  if (!status_.ok()) [[unlikely]]
    return Advanced::kFailed;
  // What goes wrong stays, and is asked for by whoever waits longer.
  if (program_->delivers_) static_cast<void>(program_->transport_->Progress());
  return next_step_ != begin ? Advanced::kSomething : Advanced::kNothing;
}

std::vector<int> ShortRun::WaitsFor() const {
  std::vector<int> ranks;
  if (next_step_ == program_->steps_.data() + program_->steps_.size())
    return ranks;
  const Step& step = *next_step_;
  for (const Operand& operand : step.operands) {
    if (operand.kind == CompiledOperand::kMessage &&
        program_->transport_->Peek(operand.link, nullptr) == nullptr)
      ranks.push_back(operand.peer);
  }
  if (!ranks.empty()) return ranks;
  const auto receivers = program_->receivers_.begin() + step.first_link;
  return {receivers, receivers + static_cast<ptrdiff_t>(step.links.size())};
}

}  // namespace trnccl
