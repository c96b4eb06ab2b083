// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a call of the process group returns. It completes by itself, in the
// thread that completes the call: results are copied to where the user wants
// them, then futures and waiters are told. It keeps its tensors until then. A
// future that Python asked for is told by a thread apart (callback_threads.h).
//
// Thread rule: that of c10d::Work: thread-safe.
//
//   auto work = WorkNeuron::Make({.rank = 0, .type = c10d::OpType::ALLREDUCE});
//   work->Watch(request);
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/torch/group_log.h"
#include "bindings/torch/torch_names.h"
#include "ccl/trnccl.h"

namespace trnccl::torch_binding {

class WorkNeuron final : public c10d::Work {
 public:
  struct Description {
    int rank = 0;
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* title = nullptr;  // for the profiler, "neuron:all_reduce"
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    std::shared_ptr<GroupLog> log;
    GroupLog::Entry entry;  // of the log
    // Once the call has succeeded, before anyone is told.
    std::function<void()> finish;
  };

  explicit WorkNeuron(Description description);
  ~WorkNeuron() override;

  // Where the call puts its request.
  trncclRequest_t* request() { return &request_; }
  // Where a receive puts what it got.
  trncclStatus_t* status() { return &status_; }

  // The call has been started: from now on it completes by itself.
  void Watch();
  // It's complete, by its own thread.
  void Complete(trncclResult_t result);
  // It's never started; whoever waits for it is told why.
  void Drop(std::exception_ptr why);

  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  int sourceRank() const override { return status_.source; }
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return entry_.sequence; }
  float getDuration() const override;

 private:
  static void OnDone(void* work);
  void End(std::exception_ptr exception, FlightRecorder::Outcome outcome);
  void TellFuture();
  // Whether the caller is to tell the future of the outcome: one thread is,
  // once there are both. Needs the mutex.
  bool ClaimTelling();
  void Tell() const;

  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
  std::function<void()> finish_;
  std::shared_ptr<GroupLog> log_;
  GroupLog::Entry entry_;
  trncclRequest_t request_ = nullptr;
  trncclStatus_t status_ = {.source = -1, .tag = 0, .count = 0};
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool told_ = false;
  std::optional<int> callback_level_;  // if Python asked for the future
  std::chrono::steady_clock::time_point finished_;
};

// Several calls that were started as one.
class CoalescedWork final : public c10d::Work {
 public:
  explicit CoalescedWork(std::vector<c10::intrusive_ptr<WorkNeuron>> works)
      : works_(std::move(works)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<WorkNeuron>> works_;
};

}  // namespace trnccl::torch_binding
