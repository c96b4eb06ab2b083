// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/tensors.h"

#include <algorithm>

#include "bindings/torch/overlap.h"

namespace trnccl::torch_binding {
namespace {

void CheckTensor(const at::Tensor& tensor, Run::Use use) {
  TORCH_CHECK_VALUE(tensor.defined(), "trnccl: a tensor is undefined");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided && !tensor.is_nested(),
                    "trnccl: a tensor is ",
                    tensor.is_nested() ? at::kJagged : tensor.layout(),
                    "; only dense ones can be sent");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "trnccl: a tensor is on ",
                    tensor.device(), "; this group takes tensors on the CPU");
  TORCH_CHECK_VALUE(!tensor.is_quantized(),
                    "trnccl: a tensor is quantized; pass its int_repr()");
  if (use == Run::kIn) return;
  TORCH_CHECK_VALUE(!tensor._is_zerotensor(),
                    "trnccl: a tensor that's written is a ZeroTensor, which "
                    "has no memory; pass a .clone() of it");
  TORCH_CHECK_VALUE(
      !SharesMemory(tensor),
      "trnccl: a tensor that's written has elements that share memory (it's "
      "expanded, say); pass a .clone() of it");
}

// Whether its memory holds its elements, in order and as they count.
bool IsPlain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor._is_zerotensor();
}

at::Tensor Plain(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options());
}

// As the library writes: nothing that autograd or inference mode would see.
void Copy(const at::Tensor& to, const at::Tensor& from) {
  const at::AutoDispatchBelowADInplaceOrView as_memory;
  to.copy_(from);
}

bool FollowsInMemory(const at::Tensor& before, const at::Tensor& next) {
  return static_cast<const std::byte*>(before.const_data_ptr()) +
             before.nbytes() ==
         static_cast<const std::byte*>(next.const_data_ptr());
}

bool LieInARow(const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!IsPlain(tensors[i]) ||
        (i > 0 && (!FollowsInMemory(tensors[i - 1], tensors[i]) ||
                   !tensors[i].storage().is_alias_of(tensors[0].storage()))))
      return false;
  }
  return true;
}

}  // namespace

Run::Run(const at::Tensor& tensor, Use use)
    : user_(tensor), dense_(tensor), use_(use) {
  CheckTensor(tensor, use);
  if (IsPlain(tensor)) return;
  dense_ = Plain(tensor.sizes(), tensor);
  if (use != kOut) Copy(dense_, user_);
}

void Run::Finish() const {
  if (use_ != kIn && !dense_.is_same(user_)) Copy(user_, dense_);
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
  if (LieInARow(tensors)) {
    dense_ = tensors[0];
    return;
  }
  TORCH_CHECK_VALUE(use == Run::kIn || !AnyShareMemory(tensors),
                    "trnccl: tensors that are written share memory (one is "
                    "several times in the list, say)");
  dense_ = Plain({total}, tensors[0]);
  int64_t first = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor row = dense_.narrow(0, first, counts_[i]);
    rows_.push_back(row.view(tensors[i].sizes()));
    if (use != Run::kOut) Copy(rows_[i], tensors[i]);
    first += counts_[i];
  }
}

bool Rows::even() const {
  return std::all_of(counts_.begin(), counts_.end(),
                     [&](int64_t count) { return count == counts_.front(); });
}

void Rows::Finish() const {
  if (use_ == Run::kIn) return;
  for (size_t i = 0; i < rows_.size(); ++i) Copy(users_[i], rows_[i]);
}

const at::Tensor& OnlyOne(const std::vector<at::Tensor>& tensors,
                          const char* call) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "trnccl: ", call,
                    " takes one tensor on each rank, not ", tensors.size());
  return tensors[0];
}

}  // namespace trnccl::torch_binding
