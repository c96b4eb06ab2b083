// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/work.h"

#include <ATen/core/ivalue.h>
#include <Python.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "bindings/torch/callback_threads.h"
#include "bindings/torch/errors.h"

namespace trnccl::torch_binding {
namespace {

c10::intrusive_ptr<c10::ivalue::Future> MakeFuture() {
  return c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()));
}

}  // namespace

WorkNeuron::WorkNeuron(Description description)
    : Work(description.rank, description.type, description.title,
           description.inputs),
      inputs_(std::move(description.inputs)),
      outputs_(std::move(description.outputs)),
      finish_(std::move(description.finish)),
      log_(std::move(description.log)),
      entry_(description.entry) {}

WorkNeuron::~WorkNeuron() {
  if (!completed_) log_->End(entry_, FlightRecorder::kDropped, entry_.started);
  if (request_ != nullptr) trncclRequestFree(request_);
}

void WorkNeuron::Watch() {
  // Whoever completes the call needs it, whatever its owner does.
  c10::raw::intrusive_ptr::incref(this);
  trncclRequestNotify(request_, &WorkNeuron::OnDone, this);
}

void WorkNeuron::OnDone(void* work) {
  auto self =
      c10::intrusive_ptr<WorkNeuron>::reclaim(static_cast<WorkNeuron*>(work));
  int done = 0;
  self->Complete(trncclRequestTest(self->request_, &done));
}

void WorkNeuron::Complete(trncclResult_t result) {
  std::exception_ptr exception;
  if (result != trncclSuccess) {
    exception = ExceptionOf(result, trncclGetLastError(nullptr));
  } else if (finish_) {
    try {
      finish_();
    } catch (...) {
      exception = std::current_exception();
    }
  }
  End(exception, exception == nullptr ? FlightRecorder::kCompleted
                                      : FlightRecorder::kFailed);
}

void WorkNeuron::Drop(std::exception_ptr why) {
  End(std::move(why), FlightRecorder::kDropped);
}

void WorkNeuron::End(std::exception_ptr exception,
                     FlightRecorder::Outcome outcome) {
  finish_ = nullptr;
  inputs_.clear();
  finished_ = std::chrono::steady_clock::now();
  finish(std::move(exception));
  TellFuture();
  entry_.peer = status_.source;
  log_->End(entry_, outcome, finished_);
}

bool WorkNeuron::ClaimTelling() {
  return completed_ && future_ != nullptr && !std::exchange(told_, true);
}

void WorkNeuron::TellFuture() {
  std::optional<int> level;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!ClaimTelling()) return;
    level = callback_level_;
  }
  if (!level.has_value()) return Tell();
  RunApart({.run = [self = c10::intrusive_ptr<WorkNeuron>::reclaim_copy(
                        this)] { self->Tell(); },
            .level = *level});
}

void WorkNeuron::Tell() const {
  if (exception_ == nullptr) {
    future_->markCompleted(at::IValue(outputs_));
  } else {
    future_->setError(exception_);
  }
}

c10::intrusive_ptr<c10::ivalue::Future> WorkNeuron::getFuture() {
  bool complete = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // Python's callers hold the interpreter's lock, C++'s don't.
    if (PyGILState_Check() != 0) callback_level_ = CallbackLevel();
    if (future_ == nullptr) future_ = MakeFuture();
    complete = ClaimTelling();
  }
  if (complete) Tell();
  return future_;
}

bool WorkNeuron::wait(std::chrono::milliseconds timeout) {
  const bool patient = timeout == kNoTimeout || timeout.count() < 0;
  const auto until = std::chrono::steady_clock::now() + timeout;
  if (!isCompleted()) {
    TORCH_CHECK(request_ != nullptr, "rank ", rank_, ": ",
                c10d::opTypeToString(retrieveOpType()), " #", entry_.sequence,
                " is in a block of coalesced calls, which start at the block's "
                "end; wait for it afterwards");
    const trncclResult_t result = trncclRequestWait(
        request_, patient ? TRNCCL_WAIT_FOREVER : timeout.count());
    if (result == trncclInProgress) {
      C10_THROW_ERROR(
          DistBackendError,
          c10::str("rank ", rank_, ": ", c10d::opTypeToString(retrieveOpType()),
                   " #", entry_.sequence, " isn't complete after ",
                   timeout.count(),
                   " ms, which is all that wait() was given; the "
                   "call goes on and can be waited for again"));
    }
  }
  // The thread that completes it may still be copying results.
  std::unique_lock<std::mutex> lock(mutex_);
  const auto completed = [this] { return completed_; };
  if (patient) {
    cv_.wait(lock, completed);
  } else {
    cv_.wait_until(lock, until, completed);
  }
  if (exception_ != nullptr) std::rethrow_exception(exception_);
  return completed_;
}

float WorkNeuron::getDuration() const {
  return std::chrono::duration<float, std::milli>(finished_ - entry_.started)
      .count();
}

bool CoalescedWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(),
                     [](const auto& work) { return work->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(),
                     [](const auto& work) { return work->isSuccess(); });
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  const bool patient = timeout == kNoTimeout || timeout.count() < 0;
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (const auto& work : works_) {
    if (patient) {
      work->wait(kNoTimeout);
      continue;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    // 0 would be for ever.
    work->wait(std::max(left, std::chrono::milliseconds(1)));
  }
  return true;
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    const std::vector<at::Tensor> one = work->result();
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() {
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& work : works_) futures.push_back(work->getFuture());
  const std::vector<at::Tensor> outputs = result();
  return c10::collectAll(futures)->then(
      [outputs](c10::ivalue::Future& all) -> at::IValue {
        if (all.hasError()) std::rethrow_exception(all.exception_ptr());
        return outputs;
      },
      c10::ListType::create(c10::TensorType::get()));
}

}  // namespace trnccl::torch_binding
