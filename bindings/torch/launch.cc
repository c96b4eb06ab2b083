// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of ProcessGroupNeuron that starts calls.
#include <mutex>
#include <set>
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

const char* ProcessGroupNeuron::TitleOf(const char* call) const {
  static std::mutex mutex;
  static auto& titles = *new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  return titles.insert(options_->backend + ":" + call).first->c_str();
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::Launch(Call call) {
  TORCH_CHECK(comm_ != nullptr, Where(), " was shut down");
  const Deadline deadline(comm_, call.timeout, options_->timeout);
  auto work = c10::make_intrusive<WorkNeuron>(WorkNeuron::Description{
      .rank = getRank(),
      .type = call.type,
      .title = call.title == nullptr ? nullptr : TitleOf(call.title),
      .inputs = std::move(call.inputs),
      .outputs = std::move(call.outputs),
      .sequence = ++sequence_,
      .finish = std::move(call.finish)});
  if (!call.asynchronous && !coalescing_) {
    const trncclResult_t result = call.start(*work, nullptr);
    work->Complete(result);
    if (result != trncclSuccess) work->wait(kNoTimeout);
    return work;
  }
  Check(call.start(*work, work->request()));
  if (coalescing_) {
    coalesced_.push_back(work);
  } else {
    work->Watch();
  }
  return work;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::LaunchAll(
    std::vector<Call> calls) {
  if (calls.size() == 1) return Launch(std::move(calls[0]));
  if (coalescing_) {
    WorkPointer last;
    for (Call& call : calls) last = Launch(std::move(call));
    return last;
  }
  // One event for the profiler, with all inputs.
  for (size_t i = 1; i < calls.size(); ++i) {
    calls[0].inputs.insert(calls[0].inputs.end(), calls[i].inputs.begin(),
                           calls[i].inputs.end());
    calls[i].title = nullptr;
  }
  startCoalescing();
  try {
    for (Call& call : calls) Launch(std::move(call));
  } catch (...) {
    // What was refused refuses the whole group.
    coalesced_.clear();
    coalescing_ = false;
    trncclGroupEnd();
    throw;
  }
  return endCoalescing();
}

void ProcessGroupNeuron::startCoalescing() {
  TORCH_CHECK(!coalescing_, Where(), ": startCoalescing() was called twice");
  Check(trncclGroupStart());
  coalescing_ = true;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::endCoalescing() {
  TORCH_CHECK(coalescing_, Where(),
              ": endCoalescing() without startCoalescing()");
  coalescing_ = false;
  const auto works = std::exchange(coalesced_, {});
  Check(trncclGroupEnd());
  for (const auto& work : works) work->Watch();
  return c10::make_intrusive<CoalescedWork>(works);
}

}  // namespace trnccl::torch_binding
