// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The process's last calls of all groups, with tensors' shapes and types, in
// the form that PyTorch's analyser of flight-recorder dumps reads
// (torch.distributed.flight_recorder). The communicator's own recorder, which
// knows algorithms and progress, is another: trncclCommDumpCalls.
//
// PyTorch's settings hold: TORCH_FR_BUFFER_SIZE calls are kept (2000; 0: none),
// and once a call fails, all are written to TORCH_FR_DUMP_TEMP_FILE followed by
// the rank, if that's set.
//
// Thread rule: thread-safe.
//
//   FlightRecorder& recorder = FlightRecorder::Get();
//   const size_t group = recorder.AddGroup({.name = "0", .ranks = {0, 1}});
//   const uint64_t call = recorder.Start({.group = group}, inputs, outputs);
//   recorder.End(call, FlightRecorder::kCompleted);
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/torch/torch_names.h"

namespace trnccl::torch_binding {

class FlightRecorder {
 public:
  struct Group {
    std::string name;
    std::string description;
    std::vector<int64_t> ranks;  // in the whole job
    int rank = 0;                // this process's in the group
  };
  struct Call {
    size_t group = 0;
    const char* title = nullptr;  // "all_reduce"; lives for ever
    int peer = -1;                // of a message, in the group
    bool is_message = false;
    uint64_t collective = 0;  // how many were started, with this one
    uint64_t message = 0;
    uint64_t operation = 0;  // of both
    std::chrono::milliseconds timeout{0};
  };
  // Dropped: it was never started.
  enum Outcome : uint8_t { kPending, kCompleted, kFailed, kDropped };

  // The process's.
  static FlightRecorder& Get();

  explicit FlightRecorder(size_t capacity);

  size_t AddGroup(Group group);
  // Its number, for End().
  uint64_t Start(const Call& call, const std::vector<at::Tensor>& inputs,
                 const std::vector<at::Tensor>& outputs);
  // `peer`: where a message came from, where that was open; else -1.
  void End(uint64_t number, Outcome outcome, int peer = -1);

  // A Python pickle of what PyTorch's analyser takes.
  std::string Dump() const;
  // Dump(), to where TORCH_FR_DUMP_TEMP_FILE says; nothing if it isn't set.
  void WriteDump(int64_t rank) const;

 private:
  struct Entry {
    Call call;
    std::vector<std::vector<int64_t>> shapes;  // inputs', then outputs'
    std::vector<at::ScalarType> types;
    size_t inputs = 0;  // of those
    int64_t created_ns = 0;
    int64_t ended_ns = 0;
    Outcome outcome = kPending;
  };

  std::string NameOf(const Entry& entry) const;
  c10::IValue Described(const Entry& entry, uint64_t number) const;
  c10::IValue DescribedGroups() const;

  mutable std::mutex mutex_;
  std::vector<Group> groups_;
  std::vector<Entry> entries_;  // call n is at n modulo their number
  uint64_t next_ = 0;
};

}  // namespace trnccl::torch_binding
