// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a process group knows of its calls: how many were started and are still
// under way, who wants to be told when one ends, and their entries in the
// flight recorder. The group and its works share it, since works outlive it.
//
// Thread rule: thread-safe; SetHook() before the first call.
//
//   auto log = std::make_shared<GroupLog>(&FlightRecorder::Get());
//   const GroupLog::Entry entry = log->Begin(call, inputs, outputs);
//   log->End(entry, FlightRecorder::kCompleted, std::chrono::...::now());
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/torch/flight_recorder.h"
#include "bindings/torch/torch_names.h"

namespace trnccl::torch_binding {

class GroupLog {
 public:
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;
  using Time = std::chrono::steady_clock::time_point;
  struct Call {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* title = nullptr;  // "all_reduce"
    int peer = -1;
    std::chrono::milliseconds timeout{0};
  };
  struct Entry {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    uint64_t sequence = 0;  // of collectives, or of messages
    uint64_t record = 0;    // the flight recorder's
    int peer = -1;          // of a message, once it's known
    Time started;
  };

  explicit GroupLog(FlightRecorder* recorder) : recorder_(recorder) {}

  // Once, before the first call.
  void Describe(FlightRecorder::Group group);
  bool described() const { return described_; }

  Entry Begin(const Call& call, const std::vector<at::Tensor>& inputs,
              const std::vector<at::Tensor>& outputs);
  // Tells the hook too, in this thread.
  void End(const Entry& entry, FlightRecorder::Outcome outcome, Time ended);
  void SetHook(Hook hook) { hook_ = std::move(hook); }
  // Blocks until no call is under way.
  void AwaitAll();
  uint64_t collectives() const { return collectives_.load(); }
  // Whether a call has.
  bool failed() const { return failed_.load(); }

 private:
  FlightRecorder* recorder_;
  size_t group_ = 0;
  int64_t global_rank_ = 0;
  bool described_ = false;
  Hook hook_;
  std::atomic<uint64_t> collectives_ = 0;
  std::atomic<uint64_t> messages_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<int64_t> pending_ = 0;
};

}  // namespace trnccl::torch_binding
