// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of ProcessGroupNeuron that starts calls.
#include <exception>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/torch/errors.h"
#include "bindings/torch/process_group.h"

namespace trnccl::torch_binding {

class ProcessGroupNeuron::Deadline {
 public:
  Deadline(trncclComm_t comm, std::chrono::milliseconds wanted,
           std::chrono::milliseconds usual)
      : comm_(comm), usual_(usual) {
    changed_ =
        wanted != c10d::kUnsetTimeout && wanted != usual && wanted.count() > 0;
    if (changed_) Check(trncclCommSetTimeout(comm, wanted.count()));
  }
  ~Deadline() {
    if (changed_) trncclCommSetTimeout(comm_, usual_.count());
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  trncclComm_t comm_;
  std::chrono::milliseconds usual_;
  bool changed_ = false;
};

const char* ProcessGroupNeuron::TitleOf(const char* call) {
  const auto [known, is_new] = titles_.try_emplace(call);
  if (is_new) {
    static std::mutex mutex;
    static auto& titles = *new std::set<std::string>;
    const std::lock_guard<std::mutex> lock(mutex);
    known->second =
        titles.insert(options_->profiled_as + ":" + call).first->c_str();
  }
  return known->second;
}

c10::intrusive_ptr<WorkNeuron> ProcessGroupNeuron::MakeWork(
    Call* call, const char* profiler_title) {
  if (!log_->described()) DescribeToLog();
  const GroupLog::Entry entry = log_->Begin(
      {.type = call->type,
       .title = call->title,
       .peer = call->message.has_value() ? call->message->peer : -1,
       .timeout = call->timeout == c10d::kUnsetTimeout ? options_->timeout
                                                       : call->timeout},
      call->inputs, call->outputs);
  return c10::make_intrusive<WorkNeuron>(
      WorkNeuron::Description{.rank = getRank(),
                              .type = call->type,
                              .title = profiler_title,
                              .inputs = std::move(call->inputs),
                              .outputs = std::move(call->outputs),
                              .log = log_,
                              .entry = entry,
                              .finish = std::move(call->finish)});
}

void ProcessGroupNeuron::AnnounceRefusal(const RefusedCall& call,
                                         std::string_view why) const {
  constexpr std::string_view kOurs = "trnccl: ";
  const std::string_view title = call.title;
  if (why.starts_with(kOurs)) why.remove_prefix(kOurs.size());
  const std::string reason =
      why.starts_with(title) ? std::string(why) : c10::str(title, ": ", why);
  // One that can't be told of, on a group that has failed, say, is known.
  if (!call.message.has_value()) {
    static_cast<void>(trncclCommAnnounceRefusal(comm_, reason.c_str()));
    return;
  }
  const auto announce = call.message->sends ? trncclCommAnnounceRefusedSend
                                            : trncclCommAnnounceRefusedRecv;
  static_cast<void>(
      announce(comm_, call.message->peer, call.message->tag, reason.c_str()));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::Launch(Call call) {
  TORCH_CHECK(comm_ != nullptr, Where(), " was shut down");
  auto work = MakeWork(&call, TitleOf(call.title));
  if (coalescing_) {
    coalesced_.push_back({work,
                          std::move(call.start),
                          call.timeout,
                          {call.title, call.message}});
    // The block's end awaits what nobody else is to.
    return call.asynchronous ? WorkPointer(work) : nullptr;
  }
  const Deadline deadline(comm_, call.timeout, options_->timeout);
  if (!call.asynchronous) {
    const trncclResult_t result = call.start(*work, nullptr);
    work->Complete(result);
    if (result != trncclSuccess) work->wait(kNoTimeout);
    return work;
  }
  Check(call.start(*work, work->request()));
  work->Watch();
  return work;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::LaunchAll(
    std::vector<Call> calls) {
  TORCH_CHECK(comm_ != nullptr, Where(), " was shut down");
  if (calls.size() == 1 || coalescing_) {
    WorkPointer last;
    for (Call& call : calls) last = Launch(std::move(call));
    return last;
  }
  // The profiler's event has all inputs.
  Tensors inputs;
  for (const Call& call : calls)
    inputs.insert(inputs.end(), call.inputs.begin(), call.inputs.end());
  std::swap(calls[0].inputs, inputs);
  std::vector<CoalescedCall> started;
  for (Call& call : calls) {
    const char* title = started.empty() ? TitleOf(call.title) : nullptr;
    const auto timeout = call.timeout;
    auto work = MakeWork(&call, title);
    started.push_back({std::move(work),
                       std::move(call.start),
                       timeout,
                       {call.title, call.message}});
  }
  const bool asynchronous = calls[0].asynchronous;
  auto work = StartTogether(std::move(started));
  if (!asynchronous) work->wait(kNoTimeout);
  return work;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::StartTogether(
    std::vector<CoalescedCall> calls) {
  Check(trncclGroupStart());
  for (const CoalescedCall& call : calls) {
    const Deadline deadline(comm_, call.timeout, options_->timeout);
    // A refusal is the group's, told at its end.
    static_cast<void>(call.start(*call.work, call.work->request()));
  }
  try {
    Check(trncclGroupEnd());
  } catch (...) {
    for (const CoalescedCall& call : calls)
      call.work->Drop(std::current_exception());
    throw;
  }
  std::vector<c10::intrusive_ptr<WorkNeuron>> works;
  for (CoalescedCall& call : calls) {
    call.work->Watch();
    works.push_back(std::move(call.work));
  }
  return c10::make_intrusive<CoalescedWork>(std::move(works));
}

void ProcessGroupNeuron::startCoalescing() {
  TORCH_CHECK(!coalescing_, Where(), ": startCoalescing() was called twice");
  coalescing_ = true;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::endCoalescing() {
  TORCH_CHECK(coalescing_, Where(),
              ": endCoalescing() without startCoalescing()");
  coalescing_ = false;
  return StartTogether(std::exchange(coalesced_, {}));
}

void ProcessGroupNeuron::CancelCoalescing() {
  coalescing_ = false;
  for (const CoalescedCall& call : std::exchange(coalesced_, {})) {
    // Of collectives the one that was refused has told.
    if (call.refused.message.has_value())
      AnnounceRefusal(call.refused,
                      "the block of coalesced calls that it was in raised an "
                      "exception before it was started");
    call.work->Drop(std::make_exception_ptr(
        std::runtime_error(Where() +
                           ": the block of coalesced calls that this one was "
                           "in raised an exception before it was started")));
  }
}

void ProcessGroupNeuron::registerOnCompletionHook(GroupLog::Hook&& hook) {
  onCompletionHook_ = hook;  // hasHooks() tells by it
  log_->SetHook(std::move(hook));
}

void ProcessGroupNeuron::DescribeToLog() {
  FlightRecorder::Group group{.name = options_->group_name,
                              .description = getGroupDesc(),
                              .rank = getRank()};
  for (const uint64_t rank : options_->global_ranks_in_group)
    group.ranks.push_back(static_cast<int64_t>(rank));
  if (group.ranks.empty()) {
    group.ranks.resize(static_cast<size_t>(getSize()));
    std::iota(group.ranks.begin(), group.ranks.end(), 0);
  }
  log_->Describe(std::move(group));
}

}  // namespace trnccl::torch_binding
