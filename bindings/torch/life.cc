// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of ProcessGroupNeuron that makes, splits and ends groups, and gives
// out memory.
#include <algorithm>
#include <cstring>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "bindings/torch/errors.h"
#include "bindings/torch/process_group.h"
#include "bindings/torch/shared_allocator.h"

namespace trnccl::torch_binding {
namespace {

constexpr char kIdKey[] = "trnccl_unique_id";

trncclUniqueId IdOf(const std::vector<uint8_t>& bytes) {
  trncclUniqueId id;
  TORCH_CHECK(bytes.size() == sizeof(id),
              "trnccl: the store holds something else under ", kIdKey,
              "; is its prefix used by another program?");
  std::memcpy(&id, bytes.data(), sizeof(id));
  return id;
}

}  // namespace

ProcessGroupNeuron::ProcessGroupNeuron(const StorePointer& store, int rank,
                                       int size, OptionsPointer options)
    : Backend(rank, size),
      store_(store),
      options_(std::move(options)),
      log_(std::make_shared<GroupLog>(&FlightRecorder::Get())) {
  Connect(store);
  init();
}

ProcessGroupNeuron::~ProcessGroupNeuron() {
  if (comm_ != nullptr) trncclCommDestroy(comm_);
}

std::string ProcessGroupNeuron::Where() const {
  return c10::str(
      "rank ", getRank(), " of group ",
      options_->group_name.empty() ? "(unnamed)" : options_->group_name);
}

void ProcessGroupNeuron::Connect(const StorePointer& store) {
  trncclUniqueId id;
  if (getRank() == 0) {
    Check(trncclGetUniqueId(&id));
    const auto* bytes = reinterpret_cast<const uint8_t*>(&id);
    store->set(kIdKey, std::vector<uint8_t>(bytes, bytes + sizeof(id)));
  } else {
    id = IdOf(store->get(kIdKey));
  }
  trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
  const std::string name =
      options_->group_name.empty() ? "torch" : options_->group_name;
  config.name = name.c_str();
  config.timeout_ms = options_->timeout.count();
  Check(trncclCommInitRankConfig(&comm_, getSize(), id, getRank(), &config));
  // A group that's made again by the same store must not find the old id: all
  // have read it by now.
  if (getRank() == 0) store->deleteKey(kIdKey);
}

void ProcessGroupNeuron::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK_VALUE(timeout.count() > 0, "a timeout must be above 0, not ",
                    timeout.count(), " ms");
  Check(trncclCommSetTimeout(comm_, timeout.count()));
  options_->timeout = timeout;
}

c10d::ErrorType ProcessGroupNeuron::getError() {
  trncclResult_t error = trncclSuccess;
  Check(trncclCommGetAsyncError(comm_, &error));
  switch (error) {
    case trncclSuccess:
    case trncclInProgress:
      return c10d::ErrorType::SUCCESS;
    case trncclTimeout:
      return c10d::ErrorType::TIMEOUT;
    case trncclRemoteError:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

void ProcessGroupNeuron::abort() {
  if (comm_ != nullptr) trncclCommAbort(comm_);
}

void ProcessGroupNeuron::shutdown() {
  if (comm_ == nullptr) return;
  trncclCommFinalize(comm_);
  trncclCommDestroy(std::exchange(comm_, nullptr));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupNeuron::MakeFrom(
    const StorePointer& store, const std::vector<int64_t>& members,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto me = std::find(members.begin(), members.end(), getRank());
  if (me == members.end()) return nullptr;
  auto made = c10::make_intrusive<Options>(
      options_->backend, options ? options->timeout : options_->timeout);
  if (options) {
    made->group_name = options->group_name;
    made->group_desc = options->group_desc;
    made->global_ranks_in_group = options->global_ranks_in_group;
  }
  return c10::make_intrusive<ProcessGroupNeuron>(
      store, static_cast<int>(me - members.begin()),
      static_cast<int>(members.size()), made);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupNeuron::split(
    const StorePointer& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  return MakeFrom(store, {ranks.begin(), ranks.end()}, options);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupNeuron::merge(
    const StorePointer& store,
    const c10::intrusive_ptr<c10d::Backend::Options>& options, const int& rank,
    const int& size) {
  auto made = c10::make_intrusive<Options>(
      options_->backend, options ? options->timeout : options_->timeout);
  if (options) made->group_name = options->group_name;
  return c10::make_intrusive<ProcessGroupNeuron>(store, rank, size, made);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupNeuron::shrink(
    const std::vector<int64_t>& ranks_to_exclude, int /*flags*/,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  std::vector<int64_t> survivors;
  for (int64_t rank = 0; rank < getSize(); ++rank) {
    if (std::find(ranks_to_exclude.begin(), ranks_to_exclude.end(), rank) ==
        ranks_to_exclude.end())
      survivors.push_back(rank);
  }
  const auto store = c10::make_intrusive<c10d::PrefixStore>(
      c10::str("shrink/", ++shrinks_), store_);
  return MakeFrom(store, survivors, options);
}

at::Tensor ProcessGroupNeuron::allocateTensor(long size,
                                              at::TensorOptions options) {
  const auto bytes = static_cast<size_t>(size) * options.dtype().itemsize();
  c10::DataPtr memory = SharedAllocator()->allocate(bytes);
  void* data = memory.get();
  return at::from_blob(
      data, {size},
      [memory = std::make_shared<c10::DataPtr>(std::move(memory))](void*) {},
      options);
}

std::shared_ptr<c10::Allocator> ProcessGroupNeuron::getMemAllocator() {
  return SharedAllocator();
}

std::string ProcessGroupNeuron::DumpCalls() const {
  char* text = nullptr;
  Check(trncclCommDumpCalls(comm_, &text));
  std::string calls(text);
  trncclFreeText(text);
  return calls;
}

}  // namespace trnccl::torch_binding
