// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A backend of torch.distributed on the library's C interface: each c10d call
// becomes one call of a communicator, or a group of them.
//
// A call that c10d marks as synchronous runs in the caller's thread, and is
// complete when it returns; any other completes by itself. Tensors may have any
// layout (tensors.h).
//
// Thread rule: calls from one thread at a time, as with all backends; Work,
// abort() and getError() from any.
//
//   auto group = ProcessGroupNeuron::Create(store, {.rank = 0, .size = 2});
//   group->allreduce(tensors)->wait();
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bindings/torch/given_up.h"
#include "bindings/torch/group_log.h"
#include "bindings/torch/members.h"
#include "bindings/torch/tensors.h"
#include "bindings/torch/torch_names.h"
#include "bindings/torch/types.h"
#include "bindings/torch/work.h"
#include "ccl/trnccl.h"

namespace trnccl::torch_binding {

class ProcessGroupNeuron final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  using StorePointer = c10::intrusive_ptr<c10d::Store>;

  struct Options : c10d::Backend::Options {
    explicit Options(
        std::string backend_name = "neuron",
        std::chrono::milliseconds deadline = kBackendDefaultTimeout)
        : c10d::Backend::Options(std::move(backend_name), deadline),
          profiled_as(backend) {}

    std::string profiled_as;  // "neuron" of "neuron:all_reduce"
  };
  using OptionsPointer = c10::intrusive_ptr<Options>;

  // All ranks of the group must make it; they find each other by the store.
  ProcessGroupNeuron(const StorePointer& store, int rank, int size,
                     OptionsPointer options);
  ~ProcessGroupNeuron() override;

  const std::string getBackendName() const override {
    return options_->backend;
  }
  // A copy: c10d writes the name and timeout of a split group into it.
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override {
    return c10::make_intrusive<Options>(*options_);
  }
  OptionsPointer options() const { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  bool supportsShrinking() const override { return true; }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }

  WorkPointer broadcast(Tensors& tensors,
                        const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors,
                        const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_sparse(Tensors& tensors,
                               const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(
      Tensors& tensors,
      const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors,
                     const c10d::ReduceOptions& options) override;
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override;
  WorkPointer C10D_ALL_GATHER_SINGLE(
      at::Tensor& output, at::Tensor& input,
      const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(
      TensorLists& outputs, Tensors& inputs,
      const c10d::AllgatherOptions& options) override;
  WorkPointer C10D_ALL_GATHER_SINGLE_COALESCED(
      Tensors& outputs, Tensors& inputs,
      const c10d::AllgatherOptions& options) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs,
                     const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs,
                      const c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(
      Tensors& outputs, TensorLists& inputs,
      const c10d::ReduceScatterOptions& options) override;
  WorkPointer C10D_REDUCE_SCATTER_SINGLE(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& options) override;
  WorkPointer C10D_REDUCE_SCATTER_SINGLE_COALESCED(
      Tensors& outputs, Tensors& inputs,
      const c10d::ReduceScatterOptions& options) override;
  WorkPointer C10D_ALL_TO_ALL_SINGLE(
      at::Tensor& output, at::Tensor& input,
      std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
      const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                       const c10d::AllToAllOptions& options) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options,
                        bool wait_all_ranks) override;

  WorkPointer send(Tensors& tensors, int destination, int tag) override;
  WorkPointer recv(Tensors& tensors, int source, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

  // Calls in between are checked at once, and start together at the end.
  void startCoalescing() override;
  WorkPointer endCoalescing() override;
  // Drops what was called since startCoalescing(), if it was.
  void CancelCoalescing();

  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return log_->collectives(); }
  void registerOnCompletionHook(GroupLog::Hook&& hook) override;
  void waitForPendingWorks() override { log_->AwaitAll(); }
  // Times are always taken.
  void enableCollectivesTiming() override {}
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  // All ranks of the group suspend it, which gives back its memory and
  // connections, and later resume it, which makes them anew.
  void suspend() override;
  void resume() override;
  // Of the process: shared memory that tensors use, and that's kept for more.
  std::unordered_map<std::string, uint64_t> getMemoryStats() override;

  c10::intrusive_ptr<c10d::Backend> split(
      const StorePointer& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  c10::intrusive_ptr<c10d::Backend> merge(
      const StorePointer& store,
      const c10::intrusive_ptr<c10d::Backend::Options>& options,
      const int& rank, const int& size) override;
  c10::intrusive_ptr<c10d::Backend> shrink(
      const std::vector<int64_t>& ranks_to_exclude, int flags,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;

  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;

  // The recorder's last calls, as PyTorch's flight recorder dumps them.
  std::string DumpCalls() const;

 private:
  // A message's peer and tag.
  struct Message {
    bool sends = false;
    int peer = 0;
    int tag = 0;
  };
  // What a call is, and how it's started.
  struct Call {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* title = nullptr;  // "all_reduce"
    Tensors inputs;
    Tensors outputs;
    std::function<void()> finish;
    std::function<trncclResult_t(WorkNeuron& work, trncclRequest_t* request)>
        start;
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
    std::optional<Message> message;
    bool asynchronous = true;
  };
  struct RefusedCall {
    const char* title = nullptr;
    std::optional<Message> message = std::nullopt;  // else a collective
  };
  struct CoalescedCall {
    c10::intrusive_ptr<WorkNeuron> work;
    decltype(Call::start) start;
    std::chrono::milliseconds timeout;
    RefusedCall refused;  // if it isn't started
  };
  WorkPointer Launch(Call call);
  // Several calls, started as one: one event for the profiler.
  WorkPointer LaunchAll(std::vector<Call> calls);
  c10::intrusive_ptr<WorkNeuron> MakeWork(Call* call, const char* title);
  // Starts all or, if one is refused, none.
  WorkPointer StartTogether(std::vector<CoalescedCall> calls);

  // What `make` returns, that which a collective is started by. If it throws,
  // this rank refuses the call, and the others, who may wait for it, are told.
  // The library tells them itself of what it refuses.
  template <typename Make>
  auto Checked(const char* title, const Make& make) const {
    return Checked(RefusedCall{.title = title}, make);
  }
  // The same of a message, of which its peer alone is told.
  template <typename Make>
  auto CheckedMessage(const Message& message, const Make& make) const {
    return Checked(RefusedCall{.title = message.sends ? "send" : "recv",
                               .message = message},
                   make);
  }
  template <typename Make>
  auto Checked(const RefusedCall& call, const Make& make) const {
    try {
      return make();
    } catch (const c10::Error& error) {
      AnnounceRefusal(call, error.what_without_backtrace());
      throw;
    } catch (const std::exception& error) {
      AnnounceRefusal(call, error.what());
      throw;
    }
  }
  void AnnounceRefusal(const RefusedCall& call, std::string_view why) const;

  template <typename Options>
  static Call CallOf(c10d::OpType type, const char* title,
                     const Options& options) {
    Call call{.type = type, .title = title};
    call.timeout = options.timeout;
    call.asynchronous = options.asyncOp;
    return call;
  }

  std::vector<int64_t> GatherEntryCounts(const at::Tensor& coalesced);
  Call AllReduceCall(const at::Tensor& tensor,
                     const c10d::AllreduceOptions& options);
  Call AllGatherCall(const at::Tensor& output, const at::Tensor& input,
                     const c10d::AllgatherOptions& options);
  Call AllGatherCall(const Tensors& outputs, const at::Tensor& input,
                     const c10d::AllgatherOptions& options);
  Call ReduceScatterCall(const at::Tensor& output, const at::Tensor& input,
                         const c10d::ReduceScatterOptions& options);
  // By peer.
  struct ExchangedParts {
    std::vector<size_t> sent;
    std::vector<size_t> received;
    trncclDataType_t type;
  };
  template <typename Buffer>
  Call ExchangeCall(Call call, const std::shared_ptr<Buffer>& out,
                    const std::shared_ptr<Buffer>& in,
                    const ExchangedParts& parts);
  // Whether this rank is the root, which alone has a list, of a tensor a rank.
  // `what` the list has: "outputs".
  bool IsRoot(const char* call, int64_t root, const TensorLists& lists,
              const char* what) const;
  Call ReceiveCall(Tensors& tensors, int source, int tag);

  // Of one call alone, where it isn't the group's.
  class Deadline;

  // "neuron:all_reduce", for as long as the process lives.
  const char* TitleOf(const char* call);
  std::string Where() const;  // "rank 0 of group world"
  // Why the communicator has failed; "" if it hasn't.
  std::string Failure() const;
  bool IsLost(int rank) const;
  // Where a rank is, by what the library can see of it.
  std::string DescribeRank(int rank) const;
  // On rank 0 of a monitored barrier: "", or who hasn't come.
  enum class Missing : uint8_t { kFirst, kAll };
  class Patience;
  std::string CollectArrivals(const std::string& key,
                              std::chrono::milliseconds timeout,
                              Missing wanted);
  void Connect();
  std::vector<uint8_t> Address(const std::string& key, MemberWatch& members);
  std::vector<uint8_t> PublishAddress(const std::string& key);
  trncclResult_t Join(const trncclUniqueId& id, MemberWatch& members,
                      GivenUp& given_up);
  // What Join() failed by: whose doing it is, as far as that's known. The
  // others are told of this rank's own trouble.
  std::string WhyNotJoined(trncclResult_t result, const std::string& error,
                           MemberWatch& members, GivenUp& given_up) const;
  // Until it's in the store.
  void AwaitKey(const std::string& key, std::chrono::milliseconds patience,
                MemberWatch& members);
  // Throws if one won't come.
  void ExpectAll(MemberWatch& members, GivenUp* given_up) const;
  // Frees the communicator, if there's one.
  void Discard();
  // Of a group that's made from this one, where `options` say nothing else.
  OptionsPointer OptionsFrom(
      const c10::intrusive_ptr<c10d::Backend::Options>& options) const;
  c10::intrusive_ptr<c10d::Backend> MakeFrom(
      const StorePointer& store, const std::vector<int64_t>& members,
      const c10::intrusive_ptr<c10d::Backend::Options>& options);

  void DescribeToLog();
  StorePointer store_;
  OptionsPointer options_;
  trncclComm_t comm_ = nullptr;
  std::shared_ptr<GroupLog> log_;
  uint64_t connections_ = 0;
  uint64_t monitored_barriers_ = 0;
  uint64_t shrinks_ = 0;
  bool coalescing_ = false;
  std::vector<CoalescedCall> coalesced_;
  std::unordered_map<const char*, const char*> titles_;  // by Call::title
};

}  // namespace trnccl::torch_binding
