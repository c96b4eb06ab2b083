// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/overlap.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>

namespace trnccl::torch_binding {
namespace {

struct Range {
  int64_t least = 0;
  int64_t most = 0;
};

// How often each stride, in bytes, is between two elements: the difference of
// their indices in the dimensions that have it. The largest stride is first.
using Strides = std::map<int64_t, Range, std::greater<>>;

void AddFirst(const at::Tensor& tensor, Strides& strides) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0) continue;
    strides[tensor.stride(d) * tensor.element_size()].most +=
        tensor.size(d) - 1;
  }
  strides[1].most += tensor.element_size() - 1;
}

void AddSecond(const at::Tensor& tensor, Strides& strides) {
  Strides own;
  AddFirst(tensor, own);
  for (const auto& [stride, range] : own) strides[stride].least -= range.most;
}

int64_t FloorOf(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

// Whether some choice of multiples adds up to `distance`. Where each stride is
// longer than all that the shorter ones span, at most two multiples are tried.
bool CanSpan(Strides::const_iterator from, Strides::const_iterator end,
             int64_t distance) {
  if (from == end) return distance == 0;
  const auto& [stride, range] = *from;
  Range rest;
  for (auto shorter = std::next(from); shorter != end; ++shorter) {
    rest.least += shorter->first * shorter->second.least;
    rest.most += shorter->first * shorter->second.most;
  }
  const int64_t first =
      std::max(range.least, -FloorOf(rest.most - distance, stride));
  const int64_t last =
      std::min(range.most, FloorOf(distance - rest.least, stride));
  for (int64_t times = first; times <= last; ++times) {
    if (CanSpan(std::next(from), end, distance - times * stride)) return true;
  }
  return false;
}

const std::byte* Begin(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

// Past its last byte; Begin() if it's empty.
const std::byte* End(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return Begin(tensor);
  int64_t last = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d)
    last += (tensor.size(d) - 1) * tensor.stride(d);
  return Begin(tensor) + last * tensor.element_size();
}

}  // namespace

bool SharesMemory(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense() || tensor.numel() == 0)
    return false;
  Strides strides;
  AddFirst(tensor, strides);
  AddSecond(tensor, strides);
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) < 2) continue;
    // Two elements whose indices in this dimension differ by 1 or more.
    if (tensor.stride(d) == 0) return true;
    Strides apart = strides;
    const int64_t stride = tensor.stride(d) * tensor.element_size();
    apart[stride].least += tensor.size(d);
    if (CanSpan(apart.begin(), apart.end(), 0)) return true;
  }
  return false;
}

bool SharesMemory(const at::Tensor& one, const at::Tensor& other) {
  if (Begin(one) >= End(other) || Begin(other) >= End(one)) return false;
  if (one.is_non_overlapping_and_dense() &&
      other.is_non_overlapping_and_dense())
    return true;
  Strides strides;
  AddFirst(one, strides);
  AddSecond(other, strides);
  return CanSpan(strides.begin(), strides.end(), Begin(other) - Begin(one));
}

bool AnyShareMemory(const std::vector<at::Tensor>& tensors) {
  std::vector<const at::Tensor*> sorted;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() > 0) sorted.push_back(&tensor);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const at::Tensor* a, const at::Tensor* b) {
              return Begin(*a) < Begin(*b);
            });
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = i + 1;
         j < sorted.size() && Begin(*sorted[j]) < End(*sorted[i]); ++j) {
      if (SharesMemory(*sorted[i], *sorted[j])) return true;
    }
  }
  return false;
}

}  // namespace trnccl::torch_binding
