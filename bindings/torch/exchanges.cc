// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of ProcessGroupNeuron that exchanges: all-to-all, messages,
// barriers.
#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "bindings/torch/errors.h"
#include "bindings/torch/process_group.h"

namespace trnccl::torch_binding {
namespace {

using c10d::OpType;

// The parts that the first dimension is split into, in elements of the type
// that travels; even parts where there are no splits.
std::vector<size_t> PartsOf(const Run& run, const at::Tensor& tensor,
                            const std::vector<int64_t>& splits, int size,
                            const ElementType& type) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const int64_t row = rows == 0 ? 0 : run.count() / rows;
  std::vector<size_t> parts;
  if (splits.empty()) {
    TORCH_CHECK_VALUE(
        rows % size == 0, "trnccl: all_to_all_single: the first dimension, ",
        rows, ", isn't a multiple of ", size, " ranks; pass split sizes");
    parts.assign(size,
                 static_cast<size_t>(rows / size * row * type.per_element));
    return parts;
  }
  TORCH_CHECK_VALUE(
      static_cast<int>(splits.size()) == size &&
          std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows &&
          std::all_of(splits.begin(), splits.end(),
                      [](int64_t split) { return split >= 0; }),
      "trnccl: all_to_all_single: the split sizes must be ", size,
      " numbers that add up to the first dimension, ", rows);
  for (const int64_t split : splits)
    parts.push_back(static_cast<size_t>(split * row * type.per_element));
  return parts;
}

bool Even(const std::vector<size_t>& parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](size_t part) { return part == parts.front(); });
}

}  // namespace

template <typename Buffer>
ProcessGroupNeuron::Call ProcessGroupNeuron::ExchangeCall(
    Call call, const std::shared_ptr<Buffer>& out,
    const std::shared_ptr<Buffer>& in, const ExchangedParts& parts) {
  call.start = [=, this](WorkNeuron&, trncclRequest_t* request) {
    return trncclAllToAllV(in->data(), parts.sent.data(), nullptr, out->data(),
                           parts.received.data(), nullptr, parts.type, comm_,
                           request);
  };
  call.finish = [in, out] { out->Finish(); };
  return call;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::C10D_ALL_TO_ALL_SINGLE(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  return Launch(Checked("all_to_all", [&] {
    CheckSameType("all_to_all_single", output.scalar_type(),
                  input.scalar_type());
    auto in = std::make_shared<Run>(input, Run::kIn);
    auto out = std::make_shared<Run>(output, Run::kOut);
    const ElementType type = TypeOfMoved(in->type());
    const auto sent = PartsOf(*in, input, input_splits, getSize(), type);
    const auto received = PartsOf(*out, output, output_splits, getSize(), type);
    // Alike on all ranks: whoever has splits may be the only one.
    const bool even = input_splits.empty() && output_splits.empty();
    TORCH_CHECK_VALUE(!even || (Even(sent) && sent == received),
                      "trnccl: all_to_all_single: without split sizes, input "
                      "and output must have as many elements");
    Call call = CallOf(OpType::ALLTOALL_BASE, "all_to_all", options);
    call.inputs = {input};
    call.outputs = {output};
    return ExchangeCall(std::move(call), out, in, {sent, received, type.type});
  }));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::alltoall(
    Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return Launch(Checked("all_to_all", [&] {
    TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == getSize() &&
                          static_cast<int>(inputs.size()) == getSize(),
                      "trnccl: all_to_all needs ", getSize(),
                      " inputs and outputs, not ", inputs.size(), " and ",
                      outputs.size());
    auto in = std::make_shared<Rows>(inputs, Run::kIn);
    auto out = std::make_shared<Rows>(outputs, Run::kOut);
    CheckSameType("all_to_all", out->type(), in->type());
    const ElementType type = TypeOfMoved(in->type());
    Call call = CallOf(OpType::ALLTOALL, "all_to_all", options);
    call.inputs = inputs;
    call.outputs = outputs;
    return ExchangeCall(
        std::move(call), out, in,
        {Counted(in->counts(), type), Counted(out->counts(), type), type.type});
  }));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::send(Tensors& tensors,
                                                         int destination,
                                                         int tag) {
  const Message message{.sends = true, .peer = destination, .tag = tag};
  return Launch(CheckedMessage(message, [&] {
    const at::Tensor& tensor = OnlyOne(tensors, "send");
    auto run = std::make_shared<Run>(tensor, Run::kIn);
    const ElementType type = TypeOfMoved(run->type());
    Call call{.type = OpType::SEND, .title = "send", .message = message};
    call.inputs = {tensor};
    call.start = [=, this](WorkNeuron&, trncclRequest_t* request) {
      return trncclSend(run->data(), Counted(run->count(), type), type.type,
                        destination, tag, comm_, request);
    };
    call.finish = [run] {};
    return call;
  }));
}

ProcessGroupNeuron::Call ProcessGroupNeuron::ReceiveCall(Tensors& tensors,
                                                         int source, int tag) {
  const at::Tensor& tensor = OnlyOne(tensors, "recv");
  auto run = std::make_shared<Run>(tensor, Run::kOut);
  const ElementType type = TypeOfMoved(run->type());
  const size_t count = Counted(run->count(), type);
  Call call{.type = OpType::RECV, .title = "recv"};
  call.message = Message{.peer = source, .tag = tag};
  // PyTorch's profiles show what's received into among the inputs.
  call.inputs = call.outputs = {tensor};
  auto got = std::make_shared<const trncclStatus_t*>();
  call.start = [=, this](WorkNeuron& work, trncclRequest_t* request) {
    *got = work.status();
    return trncclRecv(run->data(), count, type.type, source, tag, work.status(),
                      comm_, request);
  };
  call.finish = [=, rank = getRank()] {
    // c10d has no way to tell how much came.
    TORCH_CHECK_VALUE((*got)->count == count, "trnccl: rank ", rank,
                      ": recv: rank ", (*got)->source, " sent ",
                      (*got)->count / type.per_element, " elements with tag ",
                      (*got)->tag, ", but the tensor has ", run->count());
    run->Finish();
  };
  return call;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::recv(Tensors& tensors,
                                                         int source, int tag) {
  return Launch(CheckedMessage({.peer = source, .tag = tag}, [&] {
    return ReceiveCall(tensors, source, tag);
  }));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::recvAnysource(
    Tensors& tensors, int tag) {
  return Launch(CheckedMessage({.peer = TRNCCL_ANY_SOURCE, .tag = tag}, [&] {
    Call call = ReceiveCall(tensors, TRNCCL_ANY_SOURCE, tag);
    call.type = OpType::RECVANYSOURCE;
    call.title = "recvAnySource";
    return call;
  }));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::barrier(
    const c10d::BarrierOptions& options) {
  Call call = CallOf(OpType::BARRIER, "barrier", options);
  call.start = [this](WorkNeuron&, trncclRequest_t* request) {
    return trncclBarrier(comm_, request);
  };
  return Launch(std::move(call));
}

}  // namespace trnccl::torch_binding
