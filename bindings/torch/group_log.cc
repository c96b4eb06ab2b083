// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/group_log.h"

namespace trnccl::torch_binding {
namespace {

bool IsMessage(c10d::OpType type) {
  return type == c10d::OpType::SEND || type == c10d::OpType::RECV ||
         type == c10d::OpType::RECVANYSOURCE;
}

}  // namespace

void GroupLog::Describe(FlightRecorder::Group group) {
  global_rank_ = group.ranks[static_cast<size_t>(group.rank)];
  group_ = recorder_->AddGroup(std::move(group));
  described_ = true;
}

GroupLog::Entry GroupLog::Begin(const Call& call,
                                const std::vector<at::Tensor>& inputs,
                                const std::vector<at::Tensor>& outputs) {
  const bool is_message = IsMessage(call.type);
  const uint64_t sequence = ++(is_message ? messages_ : collectives_);
  ++pending_;
  const uint64_t record =
      recorder_->Start({.group = group_,
                        .title = call.title,
                        .peer = call.peer,
                        .is_message = is_message,
                        .collective = collectives_.load(),
                        .message = messages_.load(),
                        .operation = collectives_.load() + messages_.load(),
                        .timeout = call.timeout},
                       inputs, outputs);
  return {.type = call.type,
          .sequence = sequence,
          .record = record,
          .started = std::chrono::steady_clock::now()};
}

void GroupLog::End(const Entry& entry, FlightRecorder::Outcome outcome,
                   Time ended) {
  recorder_->End(entry.record, outcome, entry.peer);
  if (outcome == FlightRecorder::kFailed && !failed_.exchange(true))
    recorder_->WriteDump(global_rank_);
  if (hook_) {
    hook_(std::make_shared<c10d::WorkInfo>(
        entry.type, entry.sequence, entry.started, ended,
        std::chrono::duration<float>(ended - entry.started)));
  }
  if (--pending_ == 0) pending_.notify_all();
}

void GroupLog::AwaitAll() {
  for (int64_t pending = pending_; pending != 0; pending = pending_)
    pending_.wait(pending);
}

}  // namespace trnccl::torch_binding
