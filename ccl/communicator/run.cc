// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of Communicator that needs the token: starting, advancing,
// completing.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ccl/base/origin.h"
#include "ccl/base/status_macros.h"
#include "ccl/communicator/checks.h"
#include "ccl/communicator/communicator.h"

namespace trnccl {
namespace {

constexpr std::string_view kEngineName = "engine";

// For smaller blocks it isn't worth looking whether a buffer is registered.
constexpr size_t kReferenceBytes = 1024;

// How often arrivals of point-to-point, while no transfer waits for any or a
// collective runs, and what peers say of failures are looked for: often enough
// that nothing is held up.
constexpr uint32_t kQuietRounds = 64;

}  // namespace

void Communicator::FoldAdapter::Reset(const Folder* folder,
                                      size_t element_bytes) {
  folder_ = folder;
  element_bytes_ = element_bytes;
}

void Communicator::FoldAdapter::Fold(std::span<const std::byte* const> inputs,
                                     std::span<std::byte* const> results,
                                     size_t count) const {
  operands_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    operands_[i] = {.data = inputs[i], .raw = true};
  void* folded[2] = {};
  const size_t at_once = std::min<size_t>(results.size(), 2);
  std::copy_n(results.begin(), at_once, folded);
  folder_->Fold({.operands = operands_,
                 .results = {folded, at_once},
                 .count = count,
                 .finish = true});
  for (size_t i = at_once; i < results.size(); ++i)
    std::memcpy(results[i], results[0], count * element_bytes_);
}

bool Communicator::Advance() {
  if (failed_.load(std::memory_order_relaxed)) [[unlikely]] {
    Fail(failure());
    return false;
  }
  if (submitted_.load(std::memory_order_relaxed)) [[unlikely]]
    TakeSubmissions();
  bool moved = false;
  if (current_ != nullptr || queue_head_ != nullptr)
    moved = AdvanceCollective();
  const bool looks_around = !moved && quiet_rounds_++ % kQuietRounds == 0;
  if (looks_around) Listen();
  const bool waits = !transfers_.empty() && current_ == nullptr;
  if (looks_around || waits || point_to_point_->busy())
    moved |= AdvanceTransfers();
  if (!moved) {
    const absl::Status status = parts_.transports->Progress();
    if (!status.ok()) [[unlikely]]
      FailInCall(InCall(status));
    moved = parts_.transports->TakeArrived();
  }
  moves_ += moved;
  return moved;
}

bool Communicator::AdvanceCollective() {
  if (current_ == nullptr) return StartNext();
  switch (AdvanceRunner()) {
    case Advanced::kNothing:
      return false;
    case Advanced::kSomething:
      return true;
    case Advanced::kFailed:
      FailInCall(RunnerStatus());
      return true;
    case Advanced::kDone:
      break;
  }
  if (runner_ == Runner::kEngine && engine_stage_->declined()) {
    const absl::Status status = StartProgram();
    if (!status.ok()) Fail(status);
    return true;
  }
  if (MayComplete())
    Complete(std::exchange(current_, nullptr), absl::OkStatus());
  return true;
}

Advanced Communicator::AdvanceRunner() {
  switch (runner_) {
    case Runner::kEngine:
      return engine_stage_->Advance();
    case Runner::kShort:
      return short_run_.Advance();
    default:
      return executor_.Advance();
  }
}

const absl::Status& Communicator::RunnerStatus() const {
  switch (runner_) {
    case Runner::kEngine:
      return engine_stage_->status();
    case Runner::kShort:
      return short_run_.status();
    default:
      return executor_.status();
  }
}

void Communicator::TakeSubmissions() {
  std::vector<Operation*> taken;
  std::vector<Refused> refusals;
  {
    MutexLock lock(mutex_);
    taken.swap(submissions_);
    refusals.swap(refusals_);
    submitted_.store(false);
  }
  // In the order of the calls: one may be made in the place of a refused one.
  size_t enqueued = 0;
  for (const Refused& refused : refusals) {
    while (enqueued < refused.position) Enqueue(taken[enqueued++]);
    TellRefusal(refused);
  }
  while (enqueued < taken.size()) Enqueue(taken[enqueued++]);
}

void Communicator::Enqueue(Operation* operation) {
  // One of the same submission may have failed all: a receive that started now
  // would take the message of one that ended.
  if (failed_.load(std::memory_order_relaxed)) [[unlikely]] {
    Complete(operation, failure());
    return;
  }
  if (operation->timeout_ms == 0) operation->timeout_ms = timeout_ms();
  if (operation->kind == Operation::Kind::kTransfer) {
    Transfer& transfer = operation->transfer;
    FindRegion(&transfer);
    operation->record = recorder_->Schedule(
        {.kind = transfer.direction == Transfer::kSend ? CallKind::kSend
                                                       : CallKind::kReceive,
         .type = transfer.type,
         .count = transfer.bytes / ElementBytes(transfer.type),
         .peer = transfer.peer,
         .tag = static_cast<int32_t>(transfer.tag)});
    recorder_->Start(*operation->record, "");
    transfers_.push_back(operation);
    point_to_point_->Start(&transfer);
    ReapTransfers();
    return;
  }
  operation->record = recorder_->Schedule(RecordedOf(operation->call));
  operation->next = nullptr;
  if (queue_tail_ == nullptr) {
    queue_head_ = operation;
  } else {
    queue_tail_->next = operation;
  }
  queue_tail_ = operation;
  if (current_ == nullptr) StartNext();
}

void Communicator::FindRegion(Transfer* transfer) {
  if (transfer->peer < 0 || transfer->bytes <= kReferenceBytes) return;
  const Transport* transport =
      parts_.transports->routes()[transfer->peer].transport;
  const bool lands = transport != nullptr && transport->traits().delivers;
  if (transfer->direction != Transfer::kSend && !lands) return;
  transfer->region =
      parts_.transports->FindRegions(transfer->buffer, transfer->bytes)
          .Of(transport);
}

RecordedCall Communicator::RecordedOf(const CollectiveCall& call) {
  return {.kind = KindOf(call.collective),
          .type = call.type,
          .op = call.op,
          .count = static_cast<uint64_t>(call.output_counts.even_count),
          .peer = SpecOf(call.collective).rooted ? call.root : -1};
}

bool Communicator::StartNext() {
  if (queue_head_ == nullptr) return false;
  current_ = queue_head_;
  queue_head_ = current_->next;
  if (queue_head_ == nullptr) queue_tail_ = nullptr;
  const absl::Status status = StartCollective();
  if (!status.ok()) [[unlikely]]
    Fail(status);
  return true;
}

absl::Status Communicator::StartCollective() {
  const CollectiveCall& call = current_->call;
  current_->sequence = next_sequence_++;
  looked_after_ns_ = 0;
  envelope_ = FingerprintOf(
      call, {.cookie = parts_.cookie, .sequence = current_->sequence});
  past_calls_[current_->sequence % kPastCalls] = envelope_;
  if (refused_times_ > 0 && refused_sequence_ == current_->sequence)
      [[unlikely]]
    health_->SayMade(envelope_);
  if (SpecOf(call.collective).reduces) RETURN_IF_ERROR(ChooseFolder(call));
  ASSIGN_OR_RETURN(plan_, planner_->PlanFor(call));
  if (!engine_stage_.has_value() || !UsesEngine(call)) return StartProgram();
  fold_adapter_.Reset(&folder_, ElementBytes(call.type));
  runner_ = Runner::kEngine;
  RecordStart(kEngineName);
  engine_stage_->Start({.call = EngineCallOf(call), .envelope = envelope_});
  return absl::OkStatus();
}

absl::Status Communicator::ChooseFolder(const CollectiveCall& call) {
  // Loops repeat their calls; only a factor may differ from call to call.
  if (call.type == folder_spec_.type && call.op == folder_spec_.op &&
      call.op != ReduceOp::kPremulSum)
    return absl::OkStatus();
  const FoldSpec spec{.type = call.type,
                      .op = call.op,
                      .factor = call.factor,
                      .ranks = parts_.membership.ranks};
  ASSIGN_OR_RETURN(folder_, MakeFolder(spec));
  folder_spec_ = spec;
  return absl::OkStatus();
}

void Communicator::RecordStart(const std::string_view& algorithm) {
  last_algorithm_.store(&algorithm, std::memory_order_relaxed);
  recorder_->Start(*current_->record, algorithm);
}

EngineCall Communicator::EngineCallOf(const CollectiveCall& call) const {
  return {.collective = call.collective,
          .element_bytes = ElementBytes(call.type),
          .count = call.output_counts.even_count,
          .root = call.root,
          .input = call.input,
          .output = call.output,
          .fold = &fold_adapter_,
          .unmapped_pays = plan_->engine == EngineUse::kAlways};
}

// By what all ranks know alike. Premultiplied sums have a factor a rank, which
// only that rank can apply.
bool Communicator::UsesEngine(const CollectiveCall& call) const {
  if (plan_->engine == EngineUse::kNever) return false;
  const Spec& spec = SpecOf(call.collective);
  if (spec.uneven || (spec.reduces && call.op == ReduceOp::kPremulSum))
    return false;
  return parts_.transports->engine()->Accepts(EngineCallOf(call));
}

absl::Status Communicator::StartProgram() {
  const CollectiveCall& call = current_->call;
  const Spec& spec = SpecOf(call.collective);
  runner_ = Runner::kProgram;
  if (!current_->asynchronous) LearnShort();
  RecordStart(plan_->program->algorithm->name);
  Executor::Job job{.call = call,
                    .plan = plan_,
                    .folder = spec.reduces ? &folder_ : nullptr,
                    .envelope = envelope_};
  job.wide_partials = parts_.settings.determinism == Determinism::kStrict &&
                      spec.reduces && IsNarrowFloat(call.type);
  if (plan_->sizes.segment_count >
      static_cast<int64_t>(kReferenceBytes / ElementBytes(call.type))) {
    const BufferSizes bytes = SizesOf(call, parts_.membership);
    job.input_regions =
        parts_.transports->FindRegions(call.input, bytes.input_bytes);
    job.output_regions =
        parts_.transports->FindRegions(call.output, bytes.output_bytes);
  }
  return executor_.Start(job);
}

bool Communicator::AdvanceTransfers() {
  const absl::StatusOr<bool> moved = point_to_point_->Advance();
  if (!moved.ok()) [[unlikely]] {
    FailInCall(InCall(moved.status()));
    return true;
  }
  if (*moved || !transfers_.empty()) ReapTransfers();
  return *moved;
}

// A peer that fails leaves its buffers to their owner, once it has said so:
// what was read there since is no message.
void Communicator::DistrustReceived() {
  const auto is_fresh = [](const Operation* operation) {
    const Transfer& transfer = operation->transfer;
    return transfer.done && transfer.status.ok() &&
           transfer.direction == Transfer::kReceive &&
           transfer.received_bytes > kReferenceBytes;
  };
  if (std::ranges::none_of(transfers_, is_fresh)) return;
  health_->Listen();
  const Health::Notice* notice = health_->notice();
  if (notice == nullptr) return;
  const absl::Status cause = InCall(WithOrigin(
      absl::UnavailableError(notice->cause.message()), notice->origin));
  for (Operation* operation : transfers_)
    if (is_fresh(operation)) operation->transfer.status = cause;
  Fail(verdict_.ok() ? cause : Judgement());
}

void Communicator::ReapTransfers() {
  DistrustReceived();
  std::erase_if(transfers_, [this](Operation* operation) {
    const Transfer& transfer = operation->transfer;
    const bool sent = transfer.direction != Transfer::kSend ||
                      !transfer.status.ok() || parts_.transports->AllSent();
    if (!transfer.done || !sent) return false;
    Complete(operation, operation->transfer.status);
    return true;
  });
}

void Communicator::Complete(Operation* operation, absl::Status status) {
  if (operation->kind == Operation::Kind::kTransfer &&
      operation->receive_status != nullptr && status.ok()) {
    const Transfer& transfer = operation->transfer;
    *operation->receive_status = {
        .source = transfer.source,
        .tag = transfer.received_tag,
        .count = transfer.received_bytes / ElementBytes(transfer.type)};
  }
  if (operation->record.has_value()) {
    if (status.ok()) {
      recorder_->Complete(*operation->record);
    } else {
      recorder_->Fail(*operation->record);
    }
  }
  operation->status = std::move(status);
  if (current_ == nullptr && transfers_.empty()) parts_.transports->EndCall();
  if (operation->asynchronous) unfinished_.fetch_sub(1);
  // Its owner may free a blocking call's operation as soon as it's done.
  const bool shared = operation->on_heap;
  operation->done.store(true);
  if (shared) {
    Notice* notice = operation->TakeNotice();
    if (notice != nullptr) notices_.push_back(notice);
    operation->Release();
  }
  if (waiters_.load() > 0) [[unlikely]]
    parts_.sleepers->WakeAll();
}

}  // namespace trnccl
