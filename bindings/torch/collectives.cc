// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of ProcessGroupNeuron that turns collectives into calls.
#include <memory>
#include <utility>

#include "bindings/torch/errors.h"
#include "bindings/torch/process_group.h"

namespace trnccl::torch_binding {
namespace {

using c10d::OpType;

void CheckCount(const char* call, int64_t output, int64_t wanted) {
  TORCH_CHECK_VALUE(output == wanted, "trnccl: ", call, ": ", wanted,
                    " elements are due, but a tensor has ", output);
}

void CheckRoot(const char* call, int64_t root, int size) {
  TORCH_CHECK_VALUE(root >= 0 && root < size, "trnccl: ", call, ": root ", root,
                    " isn't one of the ranks 0 to ", size - 1);
}

}  // namespace

ProcessGroupNeuron::Call ProcessGroupNeuron::AllReduceCall(
    const at::Tensor& tensor, const c10d::AllreduceOptions& options) {
  auto run = std::make_shared<Run>(tensor, Run::kInOut);
  auto op = std::make_shared<Operator>(options.reduceOp, run->type(), comm_);
  const trncclDataType_t type = TypeOfReduced(run->type());
  Call call = CallOf(OpType::ALLREDUCE, "all_reduce", options);
  call.inputs = call.outputs = {tensor};
  call.start = [=, this](WorkNeuron&, trncclRequest_t* request) {
    return trncclAllReduce(run->data(), run->data(),
                           static_cast<size_t>(run->count()), type, op->get(),
                           comm_, request);
  };
  call.finish = [run, op] { run->Finish(); };
  return call;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allreduce(
    Tensors& tensors, const c10d::AllreduceOptions& options) {
  const bool sparse = Checked("all_reduce", [&] {
    return OnlyOne(tensors, "all_reduce").layout() == at::kSparse;
  });
  if (sparse) return allreduce_sparse(tensors, options);
  return Launch(Checked("all_reduce",
                        [&] { return AllReduceCall(tensors[0], options); }));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return LaunchAll(Checked("all_reduce", [&] {
    TORCH_CHECK_VALUE(!tensors.empty(), "trnccl: the list of tensors is empty");
    std::vector<Call> calls;
    for (const at::Tensor& tensor : tensors)
      calls.push_back(AllReduceCall(tensor, options));
    return calls;
  }));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::broadcast(
    Tensors& tensors, const c10d::BroadcastOptions& options) {
  return Launch(Checked("broadcast", [&] {
    const at::Tensor& tensor = OnlyOne(tensors, "broadcast");
    CheckRoot("broadcast", options.rootRank, getSize());
    const bool is_root = options.rootRank == getRank();
    auto run = std::make_shared<Run>(tensor, is_root ? Run::kIn : Run::kOut);
    const ElementType type = TypeOfMoved(run->type());
    const int root = static_cast<int>(options.rootRank);
    Call call = CallOf(OpType::BROADCAST, "broadcast", options);
    call.inputs = call.outputs = {tensor};
    call.start = [=, this](WorkNeuron&, trncclRequest_t* request) {
      return trncclBroadcast(run->data(), run->data(),
                             Counted(run->count(), type), type.type, root,
                             comm_, request);
    };
    call.finish = [run] { run->Finish(); };
    return call;
  }));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::reduce(
    Tensors& tensors, const c10d::ReduceOptions& options) {
  return Launch(Checked("reduce", [&] {
    const at::Tensor& tensor = OnlyOne(tensors, "reduce");
    CheckRoot("reduce", options.rootRank, getSize());
    const int root = static_cast<int>(options.rootRank);
    const bool is_root = root == getRank();
    auto run = std::make_shared<Run>(tensor, is_root ? Run::kInOut : Run::kIn);
    auto op = std::make_shared<Operator>(options.reduceOp, run->type(), comm_);
    const trncclDataType_t type = TypeOfReduced(run->type());
    Call call = CallOf(OpType::REDUCE, "reduce", options);
    call.inputs = call.outputs = {tensor};
    call.start = [=, this](WorkNeuron&, trncclRequest_t* request) {
      return trncclReduce(run->data(), is_root ? run->data() : nullptr,
                          static_cast<size_t>(run->count()), type, op->get(),
                          root, comm_, request);
    };
    call.finish = [run, op] { run->Finish(); };
    return call;
  }));
}

ProcessGroupNeuron::Call ProcessGroupNeuron::AllGatherCall(
    const at::Tensor& output, const at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  CheckSameType("all_gather_into_tensor", output.scalar_type(),
                input.scalar_type());
  CheckCount("all_gather_into_tensor", output.numel(),
             input.numel() * getSize());
  auto in = std::make_shared<Run>(input, Run::kIn);
  auto out = std::make_shared<Run>(output, Run::kOut);
  const ElementType type = TypeOfMoved(in->type());
  Call call =
      CallOf(OpType::_ALLGATHER_BASE, "all_gather_into_tensor", options);
  call.inputs = {input};
  call.outputs = {output};
  call.start = [=, this](WorkNeuron&, trncclRequest_t* request) {
    return trncclAllGather(in->data(), out->data(), Counted(in->count(), type),
                           type.type, comm_, request);
  };
  call.finish = [in, out] { out->Finish(); };
  return call;
}

ProcessGroupNeuron::Call ProcessGroupNeuron::AllGatherCall(
    const Tensors& outputs, const at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == getSize(),
                    "trnccl: all_gather needs ", getSize(),
                    " output tensors, not ", outputs.size());
  auto in = std::make_shared<Run>(input, Run::kIn);
  auto out = std::make_shared<Rows>(outputs, Run::kOut);
  CheckSameType("all_gather", out->type(), in->type());
  CheckCount("all_gather", outputs[getRank()].numel(), in->count());
  const ElementType type = TypeOfMoved(in->type());
  Call call = CallOf(OpType::ALLGATHER, "all_gather", options);
  call.inputs = {input};
  call.outputs = outputs;
  call.start = [=, this](WorkNeuron&, trncclRequest_t* request) {
    if (out->even()) {
      return trncclAllGather(in->data(), out->data(),
                             Counted(in->count(), type), type.type, comm_,
                             request);
    }
    const auto counts = Counted(out->counts(), type);
    return trncclAllGatherV(in->data(), out->data(), counts.data(), nullptr,
                            type.type, comm_, request);
  };
  call.finish = [in, out] { out->Finish(); };
  return call;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allgather(
    TensorLists& outputs, Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return Launch(Checked("all_gather", [&] {
    const at::Tensor& input = OnlyOne(inputs, "all_gather");
    TORCH_CHECK_VALUE(outputs.size() == 1,
                      "trnccl: all_gather takes one list of outputs, not ",
                      outputs.size());
    return AllGatherCall(outputs[0], input, options);
  }));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::C10D_ALL_GATHER_SINGLE(
    at::Tensor& output, at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  return Launch(Checked("all_gather_into_tensor",
                        [&] { return AllGatherCall(output, input, options); }));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return LaunchAll(Checked("all_gather", [&] {
    TORCH_CHECK_VALUE(
        !inputs.empty() && static_cast<int>(outputs.size()) == getSize(),
        "trnccl: all_gather_coalesced needs inputs, and a list of "
        "outputs for each rank");
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensors of_input;
      for (const Tensors& of_rank : outputs) {
        TORCH_CHECK_VALUE(of_rank.size() == inputs.size(),
                          "trnccl: all_gather_coalesced has ", inputs.size(),
                          " inputs, but ", of_rank.size(),
                          " outputs of one rank");
        of_input.push_back(of_rank[i]);
      }
      calls.push_back(AllGatherCall(of_input, inputs[i], options));
    }
    return calls;
  }));
}

ProcessGroupNeuron::WorkPointer
ProcessGroupNeuron::C10D_ALL_GATHER_SINGLE_COALESCED(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return LaunchAll(Checked("all_gather_into_tensor", [&] {
    TORCH_CHECK_VALUE(!inputs.empty() && outputs.size() == inputs.size(),
                      "trnccl: there are ", inputs.size(), " inputs, but ",
                      outputs.size(), " outputs");
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); ++i)
      calls.push_back(AllGatherCall(outputs[i], inputs[i], options));
    return calls;
  }));
}

bool ProcessGroupNeuron::IsRoot(const char* call, int64_t root,
                                const TensorLists& lists,
                                const char* what) const {
  CheckRoot(call, root, getSize());
  const bool is_root = root == getRank();
  TORCH_CHECK_VALUE(is_root ? lists.size() == 1 &&
                                  static_cast<int>(lists[0].size()) == getSize()
                            : lists.empty(),
                    "trnccl: ", call, " needs ", is_root ? getSize() : 0, " ",
                    what, " on rank ", getRank(), ", where the root is ", root);
  return is_root;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::gather(
    TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return Launch(Checked("gather", [&] {
    const at::Tensor& input = OnlyOne(inputs, "gather");
    const bool is_root = IsRoot("gather", options.rootRank, outputs, "outputs");
    const int root = static_cast<int>(options.rootRank);
    auto in = std::make_shared<Run>(input, Run::kIn);
    std::shared_ptr<Rows> out;
    if (is_root) {
      out = std::make_shared<Rows>(outputs[0], Run::kOut);
      CheckSameType("gather", out->type(), in->type());
      for (const int64_t count : out->counts())
        CheckCount("gather", count, in->count());
    }
    const ElementType type = TypeOfMoved(in->type());
    Call call = CallOf(OpType::GATHER, "gather", options);
    call.inputs = {input};
    if (is_root) call.outputs = outputs[0];
    call.start = [=, this](WorkNeuron&, trncclRequest_t* request) {
      return trncclGather(in->data(), is_root ? out->data() : nullptr,
                          Counted(in->count(), type), type.type, root, comm_,
                          request);
    };
    call.finish = [in, out] {
      if (out != nullptr) out->Finish();
    };
    return call;
  }));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::scatter(
    Tensors& outputs, TensorLists& inputs,
    const c10d::ScatterOptions& options) {
  return Launch(Checked("scatter", [&] {
    const at::Tensor& output = OnlyOne(outputs, "scatter");
    const bool is_root = IsRoot("scatter", options.rootRank, inputs, "inputs");
    const int root = static_cast<int>(options.rootRank);
    auto out = std::make_shared<Run>(output, Run::kOut);
    std::shared_ptr<Rows> in;
    if (is_root) {
      in = std::make_shared<Rows>(inputs[0], Run::kIn);
      CheckSameType("scatter", out->type(), in->type());
      for (const int64_t count : in->counts())
        CheckCount("scatter", count, out->count());
    }
    const ElementType type = TypeOfMoved(out->type());
    Call call = CallOf(OpType::SCATTER, "scatter", options);
    if (is_root) call.inputs = inputs[0];
    call.outputs = {output};
    call.start = [=, this](WorkNeuron&, trncclRequest_t* request) {
      return trncclScatter(is_root ? in->data() : nullptr, out->data(),
                           Counted(out->count(), type), type.type, root, comm_,
                           request);
    };
    call.finish = [in, out] { out->Finish(); };
    return call;
  }));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::reduce_scatter(
    Tensors& outputs, TensorLists& inputs,
    const c10d::ReduceScatterOptions& options) {
  return Launch(Checked("reduce_scatter", [&] {
    const at::Tensor& output = OnlyOne(outputs, "reduce_scatter");
    TORCH_CHECK_VALUE(
        inputs.size() == 1 && static_cast<int>(inputs[0].size()) == getSize(),
        "trnccl: reduce_scatter needs a list of ", getSize(), " inputs");
    auto in = std::make_shared<Rows>(inputs[0], Run::kIn);
    auto out = std::make_shared<Run>(output, Run::kOut);
    CheckSameType("reduce_scatter", out->type(), in->type());
    CheckCount("reduce_scatter", out->count(), in->counts()[getRank()]);
    auto op = std::make_shared<Operator>(options.reduceOp, in->type(), comm_);
    const trncclDataType_t type = TypeOfReduced(in->type());
    Call call = CallOf(OpType::REDUCE_SCATTER, "reduce_scatter", options);
    call.inputs = inputs[0];
    call.outputs = {output};
    call.start = [=, this](WorkNeuron&, trncclRequest_t* request) {
      if (in->even()) {
        return trncclReduceScatter(in->data(), out->data(),
                                   static_cast<size_t>(out->count()), type,
                                   op->get(), comm_, request);
      }
      const auto counts = Counted(in->counts(), {.type = type});
      return trncclReduceScatterV(in->data(), out->data(), counts.data(), type,
                                  op->get(), comm_, request);
    };
    call.finish = [in, out, op] { out->Finish(); };
    return call;
  }));
}

ProcessGroupNeuron::Call ProcessGroupNeuron::ReduceScatterCall(
    const at::Tensor& output, const at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  CheckSameType("reduce_scatter_tensor", output.scalar_type(),
                input.scalar_type());
  CheckCount("reduce_scatter_tensor", input.numel(),
             output.numel() * getSize());
  auto in = std::make_shared<Run>(input, Run::kIn);
  auto out = std::make_shared<Run>(output, Run::kOut);
  auto op = std::make_shared<Operator>(options.reduceOp, in->type(), comm_);
  const trncclDataType_t type = TypeOfReduced(in->type());
  Call call =
      CallOf(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", options);
  call.inputs = {input};
  call.outputs = {output};
  call.start = [=, this](WorkNeuron&, trncclRequest_t* request) {
    return trncclReduceScatter(in->data(), out->data(),
                               static_cast<size_t>(out->count()), type,
                               op->get(), comm_, request);
  };
  call.finish = [in, out, op] { out->Finish(); };
  return call;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::C10D_REDUCE_SCATTER_SINGLE(
    at::Tensor& output, at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  return Launch(Checked("reduce_scatter_tensor", [&] {
    return ReduceScatterCall(output, input, options);
  }));
}

ProcessGroupNeuron::WorkPointer
ProcessGroupNeuron::C10D_REDUCE_SCATTER_SINGLE_COALESCED(
    Tensors& outputs, Tensors& inputs,
    const c10d::ReduceScatterOptions& options) {
  return LaunchAll(Checked("reduce_scatter_tensor", [&] {
    TORCH_CHECK_VALUE(!inputs.empty() && outputs.size() == inputs.size(),
                      "trnccl: there are ", inputs.size(), " inputs, but ",
                      outputs.size(), " outputs");
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); ++i)
      calls.push_back(ReduceScatterCall(outputs[i], inputs[i], options));
    return calls;
  }));
}

}  // namespace trnccl::torch_binding
