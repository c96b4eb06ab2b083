// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/tensors.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>

namespace trnccl::torch_binding {
namespace {

void CheckTensor(const at::Tensor& tensor, Run::Use use) {
  TORCH_CHECK_VALUE(tensor.defined(), "trnccl: a tensor is undefined");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "trnccl: a tensor is ",
                    tensor.layout(), "; only dense ones can be sent");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "trnccl: a tensor is on ",
                    tensor.device(), "; this group takes tensors on the CPU");
  TORCH_CHECK_VALUE(
      use == Run::kIn ||
          at::has_internal_overlap(tensor) != at::MemOverlap::Yes,
      "trnccl: a tensor that's written has elements that share memory (it's "
      "expanded, say); pass a .clone() of it");
}

bool FollowsInMemory(const at::Tensor& before, const at::Tensor& next) {
  return static_cast<const std::byte*>(before.const_data_ptr()) +
             before.nbytes() ==
         static_cast<const std::byte*>(next.const_data_ptr());
}

bool LieInARow(const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].is_contiguous() ||
        (i > 0 && (!FollowsInMemory(tensors[i - 1], tensors[i]) ||
                   !tensors[i].storage().is_alias_of(tensors[0].storage()))))
      return false;
  }
  return true;
}

}  // namespace

Run::Run(const at::Tensor& tensor, Use use) : user_(tensor), use_(use) {
  CheckTensor(tensor, use);
  if (tensor.is_contiguous()) {
    dense_ = tensor;
  } else if (use == kOut) {
    dense_ = at::empty(tensor.sizes(), tensor.options());
  } else {
    dense_ = tensor.contiguous();
  }
}

void Run::Finish() const {
  if (use_ == kIn || dense_.is_same(user_)) return;
  const at::NoGradGuard no_grad;
  user_.copy_(dense_);
}

Rows::Rows(const std::vector<at::Tensor>& tensors, Run::Use use)
    : users_(tensors), use_(use) {
  TORCH_CHECK_VALUE(!tensors.empty(), "trnccl: the list of tensors is empty");
  int64_t total = 0;
  for (const at::Tensor& tensor : tensors) {
    CheckTensor(tensor, use);
    TORCH_CHECK_VALUE(tensor.scalar_type() == tensors[0].scalar_type(),
                      "trnccl: the tensors of a list are of several types: ",
                      tensors[0].scalar_type(), " and ", tensor.scalar_type());
    counts_.push_back(tensor.numel());
    total += tensor.numel();
  }
  in_place_ = LieInARow(tensors);
  if (in_place_) {
    dense_ = tensors[0];
  } else if (use == Run::kOut) {
    dense_ = at::empty({total}, tensors[0].options().layout(at::kStrided));
  } else {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape(-1));
    dense_ = at::cat(flat);
  }
}

bool Rows::even() const {
  return std::all_of(counts_.begin(), counts_.end(),
                     [&](int64_t count) { return count == counts_.front(); });
}

void Rows::Finish() const {
  if (use_ == Run::kIn || in_place_) return;
  const at::NoGradGuard no_grad;
  int64_t first = 0;
  for (size_t i = 0; i < users_.size(); ++i) {
    const at::Tensor& user = users_[i];
    user.copy_(dense_.narrow(0, first, counts_[i]).view(user.sizes()));
    first += counts_[i];
  }
}

const at::Tensor& OnlyOne(const std::vector<at::Tensor>& tensors,
                          const char* call) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "trnccl: ", call,
                    " takes one tensor on each rank, not ", tensors.size());
  return tensors[0];
}

}  // namespace trnccl::torch_binding
