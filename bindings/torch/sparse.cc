// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of ProcessGroupNeuron that sums sparse tensors: all ranks gather
// all entries and add them up, each for itself.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "bindings/torch/errors.h"
#include "bindings/torch/process_group.h"

namespace trnccl::torch_binding {
namespace {

using c10d::OpType;

// Of all ranks, one after the other in the first dimension.
struct Entries {
  at::Tensor mine;
  at::Tensor all;
  std::vector<size_t> counts;  // elements by rank
};

Entries EntriesOf(const at::Tensor& mine, const std::vector<int64_t>& rows) {
  Entries entries{.mine = mine.contiguous()};
  std::vector<int64_t> shape = mine.sizes().vec();
  shape[0] = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  entries.all = at::empty(shape, entries.mine.options());
  const int64_t row = std::accumulate(shape.begin() + 1, shape.end(),
                                      int64_t{1}, std::multiplies<>());
  for (const int64_t count : rows)
    entries.counts.push_back(static_cast<size_t>(count * row));
  return entries;
}

}  // namespace

// How many entries each rank has; a rank with another shape is refused.
std::vector<int64_t> ProcessGroupNeuron::GatherEntryCounts(
    const at::Tensor& coalesced) {
  constexpr int64_t kMostDimensions = 62;
  TORCH_CHECK_VALUE(coalesced.dim() <= kMostDimensions,
                    "trnccl: a sparse tensor of ", coalesced.dim(),
                    " dimensions");
  // The number of entries, that of dimensions, and the sizes.
  constexpr size_t kFacts = 2 + kMostDimensions;
  std::vector<int64_t> mine(kFacts, 0);
  mine[0] = coalesced._nnz();
  mine[1] = coalesced.sparse_dim();
  std::copy(coalesced.sizes().begin(), coalesced.sizes().end(),
            mine.begin() + 2);
  std::vector<int64_t> all(kFacts * static_cast<size_t>(getSize()));
  Check(trncclAllGather(mine.data(), all.data(), kFacts, trncclInt64, comm_,
                        nullptr));
  std::vector<int64_t> counts;
  for (int rank = 0; rank < getSize(); ++rank) {
    const auto facts = all.begin() + static_cast<int64_t>(kFacts) * rank;
    TORCH_CHECK_VALUE(std::equal(facts + 1, facts + kFacts, mine.begin() + 1),
                      "trnccl: all_reduce of sparse tensors: rank ", rank,
                      " has another shape than rank ", getRank(),
                      ", which has ", coalesced.sizes());
    counts.push_back(*facts);
  }
  return counts;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allreduce_sparse(
    Tensors& tensors, const c10d::AllreduceOptions& options) {
  return LaunchAll(Checked("all_reduce", [&] {
    const at::Tensor tensor = OnlyOne(tensors, "all_reduce");
    TORCH_CHECK_VALUE(
        tensor.layout() == at::kSparse && tensor.device().is_cpu(),
        "trnccl: all_reduce of sparse tensors takes those in COO "
        "form on the CPU, not ",
        tensor.layout(), " on ", tensor.device());
    TORCH_CHECK_VALUE(options.reduceOp == c10d::ReduceOp::SUM,
                      "trnccl: all_reduce of sparse tensors sums; use "
                      "ReduceOp.SUM");
    const at::Tensor coalesced = tensor.coalesce();
    const std::vector<int64_t> counts = GatherEntryCounts(coalesced);
    // An entry's indices and values are a row each.
    const auto indices =
        std::make_shared<Entries>(EntriesOf(coalesced.indices().t(), counts));
    const auto values =
        std::make_shared<Entries>(EntriesOf(coalesced.values(), counts));
    const auto missing = std::make_shared<std::atomic<int>>(2);
    const auto finish = [=] {
      if (--*missing > 0) return;
      const at::NoGradGuard no_grad;
      tensor.copy_(
          at::sparse_coo_tensor(indices->all.t(), values->all, tensor.sizes())
              .coalesce());
    };
    std::vector<Call> calls;
    for (const auto& entries : {indices, values}) {
      const ElementType type = TypeOfMoved(entries->mine.scalar_type());
      Call call =
          CallOf(OpType::_ALLREDUCE_SPARSE, "all_reduce_sparse", options);
      call.inputs = {entries->mine};
      call.start = [=, this](WorkNeuron&, trncclRequest_t* request) {
        std::vector<size_t> parts = entries->counts;
        for (size_t& part : parts)
          part *= static_cast<size_t>(type.per_element);
        return trncclAllGatherV(entries->mine.const_data_ptr(),
                                entries->all.mutable_data_ptr(), parts.data(),
                                nullptr, type.type, comm_, request);
      };
      call.finish = finish;
      calls.push_back(std::move(call));
    }
    calls.back().outputs = {tensor};
    return calls;
  }));
}

}  // namespace trnccl::torch_binding
