// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Tensors as users have them, as the runs of memory that the library takes: a
// contiguous tensor is one already; any other, and one whose elements are yet
// to be conjugated or negated, is copied in before the call and, where it's
// written, back after it.
//
// Thread rule: thread-compatible; Finish() may run in any thread.
//
//   Run run(tensor, Run::kInOut);
//   trncclAllReduce(run.data(), run.data(), run.count(), ...);
//   run.Finish();
#pragma once

#include <cstdint>
#include <vector>

#include "bindings/torch/torch_names.h"

namespace trnccl::torch_binding {

// One tensor.
class Run {
 public:
  enum Use : uint8_t { kIn, kOut, kInOut };

  // ValueError if the call can't be done on it: not on the CPU, sparse,
  // quantized, or written while several of its elements share memory.
  Run(const at::Tensor& tensor, Use use);

  void* data() const { return dense_.mutable_data_ptr(); }
  int64_t count() const { return dense_.numel(); }
  at::ScalarType type() const { return dense_.scalar_type(); }
  // Copies results to where the user wants them.
  void Finish() const;

 private:
  at::Tensor user_;
  at::Tensor dense_;
  Use use_;
};

// Several tensors of one type, one after the other in one run.
class Rows {
 public:
  // ValueError as Run, and for tensors that are written and share memory.
  Rows(const std::vector<at::Tensor>& tensors, Run::Use use);

  void* data() const { return dense_.mutable_data_ptr(); }
  const std::vector<int64_t>& counts() const { return counts_; }
  bool even() const;
  at::ScalarType type() const { return dense_.scalar_type(); }
  void Finish() const;

 private:
  std::vector<at::Tensor> users_;
  std::vector<int64_t> counts_;
  at::Tensor dense_;
  std::vector<at::Tensor> rows_;  // of it; none if users' are that run already
  Run::Use use_;
};

// ValueError unless there's exactly one tensor.
const at::Tensor& OnlyOne(const std::vector<at::Tensor>& tensors,
                          const char* call);

}  // namespace trnccl::torch_binding
