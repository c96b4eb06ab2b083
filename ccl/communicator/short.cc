// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of Communicator that runs small blocking calls of a kind that it
// has run before: straight through, while peers come soon. Where one doesn't,
// the call becomes an operation like any other, at the step that it's at.
#include <optional>
#include <utility>

#include "ccl/communicator/communicator.h"

namespace trnccl {
namespace {

// Looks at the links before a late peer is waited for as usual, where each rank
// has a core of its own.
constexpr int kShortRounds = 256;

// Every so many short calls, what else may have arrived is looked for.
constexpr uint32_t kCallsPerLook = 64;

ShortKey KeyOf(const Envelope& fingerprint) {
  return {.what = fingerprint.words[1], .count = fingerprint.words[2]};
}

}  // namespace

bool Communicator::RunShort(const ShortKey& key, const CallBuffers& buffers,
                            absl::Status* status) {
  // The table is the token's: without contention that costs one exchange.
  if (!TryAcquire()) return false;
  if (++calls_since_look_ % kCallsPerLook == 0) [[unlikely]] {
    Listen();
    AdvanceTransfers();
  }
  const ShortCall* call = short_calls_.Find(key);
  const bool runs =
      call != nullptr && call->buffers.Allows(buffers) &&
      unfinished_.load(std::memory_order_relaxed) == 0 &&
      !failed_.load(std::memory_order_acquire) && !armed_ &&
      (refused_times_ == 0 || refused_sequence_ != next_sequence_);
  if (!runs) {
    Release();
    return false;
  }
  const uint32_t sequence = next_sequence_++;
  Envelope envelope = call->envelope;
  envelope.words[0] |= sequence;
  past_calls_[sequence % kPastCalls] = envelope;
  const uint64_t record = recorder_->Begin(call->recorded);
  last_algorithm_.store(call->algorithm, std::memory_order_relaxed);
  short_run_.Start({.program = &call->program,
                    .folder = &call->folder,
                    .input = buffers.input,
                    .output = buffers.output},
                   envelope);
  for (int round = policy_.spin_ns > 0 ? kShortRounds : 1; round > 0; --round) {
    if (short_run_.Advance() != Advanced::kDone) continue;
    recorder_->Complete(record);
    Release();
    return true;
  }
  *status = FinishShort(*call, buffers, {sequence, record});
  return true;
}

absl::Status Communicator::FinishShort(const ShortCall& call,
                                       const CallBuffers& buffers,
                                       const StartedCall& started) {
  Operation operation;
  operation.call = call.call;
  operation.call.input = buffers.input;
  operation.call.output = buffers.output;
  operation.timeout_ms = timeout_ms();
  operation.sequence = started.sequence;
  operation.record = started.record;
  current_ = &operation;
  runner_ = Runner::kShort;
  looked_after_ns_ = 0;
  envelope_ = call.envelope;
  envelope_.words[0] |= started.sequence;
  Drive({.operation = &operation});
  return std::move(operation.status);
}

void Communicator::LearnShort() {
  const CollectiveCall& call = current_->call;
  const Spec& spec = SpecOf(call.collective);
  const bool wide = parts_.settings.determinism == Determinism::kStrict &&
                    IsNarrowFloat(call.type);
  if (spec.uneven || wide || call.op == ReduceOp::kPremulSum ||
      plan_->engine != EngineUse::kNever || short_calls_.Find(KeyOf(envelope_)))
    return;
  std::optional<ShortProgram> program =
      ShortProgram::Make(*plan_, call.type, spec.reduces ? &folder_ : nullptr);
  if (!program.has_value()) return;
  RecordedCall recorded = RecordedOf(call);
  recorded.algorithm = recorder_->NumberOf(plan_->program->algorithm->name);
  Envelope envelope = envelope_;
  envelope.words[0] &= ~uint64_t{UINT32_MAX};
  short_calls_.Learn({.key = KeyOf(envelope_),
                      .call = call,
                      .buffers = BufferRule::Of(call, parts_.membership),
                      .program = *std::move(program),
                      .folder = folder_,
                      .envelope = envelope,
                      .recorded = recorded,
                      .algorithm = &plan_->program->algorithm->name});
}

}  // namespace trnccl
