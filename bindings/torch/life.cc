// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of ProcessGroupNeuron that makes, splits and ends groups, and gives
// out memory.
#include <Python.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "bindings/torch/errors.h"
#include "bindings/torch/given_up.h"
#include "bindings/torch/members.h"
#include "bindings/torch/process_group.h"
#include "bindings/torch/shared_allocator.h"

namespace trnccl::torch_binding {
namespace {

// How long a rank that can't reach rank 0 waits for a newer address of it.
constexpr std::chrono::seconds kNewerAddress{3};
// The least time that ranks get to find each other.
constexpr std::chrono::milliseconds kLeastConnect{5000};
// c10d's SHRINK_ABORT: calls under way needn't be waited for.
constexpr int kShrinkAbort = 1;
// Between looks whether a group is made by now, or rank 0's part of it is.
constexpr std::chrono::microseconds kLeastPause{100};
constexpr std::chrono::microseconds kMostPause{50'000};
constexpr char kOrigin[] = "origin: rank ";
constexpr char kPatience[] = "TRNCCL_BOOTSTRAP_TIMEOUT_MS";
// How long the word of a loss, or of who gave up, may take to all.
constexpr std::chrono::milliseconds kWordOfLoss{500};
constexpr std::chrono::milliseconds kBetweenLooks{10};
// In place of rank 0's address, before the reason why it has none.
constexpr std::string_view kNoAddress = "no address: ";

std::vector<uint8_t> BytesOf(const trncclUniqueId& id) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&id);
  return {bytes, bytes + sizeof(id)};
}

trncclUniqueId IdOf(const std::vector<uint8_t>& bytes) {
  trncclUniqueId id;
  TORCH_CHECK(bytes.size() == sizeof(id),
              "trnccl: the store holds something else than rank 0's address; "
              "is its prefix used by another program?");
  std::memcpy(&id, bytes.data(), sizeof(id));
  return id;
}

// "rank 3 (host a, pid 7)", of this process.
std::string NameOfSelf(int rank) {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, sizeof(host) - 1);
  return c10::str("rank ", rank, " (host ", host, ", pid ", getpid(), ")");
}

// Why rank 0 has no address, if that stands in its place.
std::optional<std::string> WhyNoAddress(const std::vector<uint8_t>& value) {
  const std::string text(value.begin(), value.end());
  if (!text.starts_with(kNoAddress)) return std::nullopt;
  return text.substr(kNoAddress.size());
}

bool Names(const std::string& error) {
  return error.find(kOrigin) != std::string::npos;
}

// Whether the store comes to hold another value soon.
bool Changes(c10d::Store* store, const std::string& key,
             const std::vector<uint8_t>& value) {
  const auto until = std::chrono::steady_clock::now() + kNewerAddress;
  while (std::chrono::steady_clock::now() < until) {
    if (store->check({key}) && store->get(key) != value) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

}  // namespace

ProcessGroupNeuron::ProcessGroupNeuron(const StorePointer& store, int rank,
                                       int size, OptionsPointer options)
    : Backend(rank, size),
      store_(store),
      options_(std::move(options)),
      log_(std::make_shared<GroupLog>(&FlightRecorder::Get())) {
  Connect();
  init();
}

// Python frees groups with the interpreter's lock held, which callbacks of the
// calls that this waits for may need.
ProcessGroupNeuron::~ProcessGroupNeuron() {
  if (comm_ == nullptr) return;
  const bool locked = Py_IsInitialized() != 0 && PyGILState_Check() != 0;
  PyThreadState* const thread = locked ? PyEval_SaveThread() : nullptr;
  Discard();
  if (thread != nullptr) PyEval_RestoreThread(thread);
}

std::string ProcessGroupNeuron::Where() const {
  return c10::str(
      "rank ", getRank(), " of group ",
      options_->group_name.empty() ? "(unnamed)" : options_->group_name);
}

std::vector<uint8_t> ProcessGroupNeuron::PublishAddress(
    const std::string& key) {
  trncclUniqueId id;
  const trncclResult_t result = trncclGetUniqueId(&id);
  if (result == trncclSuccess) {
    store_->set(key, BytesOf(id));
    return BytesOf(id);
  }
  const std::string why = c10::str(Where(), ": ", trncclGetLastError(nullptr),
                                   "; origin: ", NameOfSelf(getRank()));
  store_->set(key, std::string(kNoAddress) + why);
  std::rethrow_exception(ExceptionOf(result, why));
}

// Rank 0's address, which it publishes.
std::vector<uint8_t> ProcessGroupNeuron::Address(const std::string& key,
                                                 MemberWatch& members) {
  if (getRank() == 0) return PublishAddress(key);
  const auto patience = std::max(options_->timeout, kLeastConnect);
  try {
    // A wait that's cut into pieces would warn of each that ends in vain.
    if (members.sees()) {
      AwaitKey(key, patience, members);
    } else {
      store_->wait({key}, patience);
    }
    std::vector<uint8_t> address = store_->get(key);
    // Of an earlier run, maybe.
    if (WhyNoAddress(address) && Changes(store_.get(), key, address))
      address = store_->get(key);
    if (const auto why = WhyNoAddress(address))
      C10_THROW_ERROR(DistBackendError, c10::str(Where(), ": ", *why));
    return address;
  } catch (const c10::DistBackendError&) {
    throw;
  } catch (const c10::Error& error) {
    C10_THROW_ERROR(
        DistBackendError,
        c10::str(Where(),
                 ": rank 0 of the group hasn't made its part of it within ",
                 options_->timeout.count(),
                 " ms (see whether it runs and makes the same groups in the "
                 "same order): ",
                 error.what_without_backtrace()));
  }
}

void ProcessGroupNeuron::AwaitKey(const std::string& key,
                                  std::chrono::milliseconds patience,
                                  MemberWatch& members) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (auto pause = kLeastPause; !store_->check({key});
       pause = std::min(2 * pause, kMostPause)) {
    ExpectAll(members, nullptr);
    if (std::chrono::steady_clock::now() > until)
      C10_THROW_ERROR(DistStoreError, c10::str(key, " isn't there"));
    std::this_thread::sleep_for(pause);
  }
}

void ProcessGroupNeuron::ExpectAll(MemberWatch& members,
                                   GivenUp* given_up) const {
  std::string why_not = members.WhyNot();
  if (why_not.empty() && given_up != nullptr) why_not = given_up->Heard();
  if (!why_not.empty())
    C10_THROW_ERROR(DistBackendError, c10::str(Where(), ": ", why_not));
}

trncclResult_t ProcessGroupNeuron::Join(const trncclUniqueId& id,
                                        MemberWatch& members,
                                        GivenUp& given_up) {
  trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
  const std::string name =
      options_->group_name.empty() ? "torch" : options_->group_name;
  config.name = name.c_str();
  config.timeout_ms = options_->timeout.count();
  // c10d's users expect its timeout here too, unless they say otherwise.
  const std::string patience =
      c10::str(kPatience, "=",
               std::clamp<std::chrono::milliseconds>(
                   options_->timeout, kLeastConnect, std::chrono::hours(24))
                   .count());
  const char* const settings[] = {patience.c_str()};
  if (std::getenv(kPatience) == nullptr) {
    config.settings = settings;
    config.settings_count = 1;
  }
  config.blocking = 0;
  trncclResult_t result =
      trncclCommInitRankConfig(&comm_, getSize(), id, getRank(), &config);
  for (auto pause = kLeastPause; result == trncclInProgress;
       pause = std::min(2 * pause, kMostPause)) {
    std::this_thread::sleep_for(pause);
    Check(trncclCommGetAsyncError(comm_, &result));
    // Others may use it already: what has failed since is the next call's.
    int ranks = 0;
    if (trncclCommCount(comm_, &ranks) == trncclSuccess) return trncclSuccess;
    if (result != trncclInProgress) break;
    try {
      ExpectAll(members, &given_up);
    } catch (...) {
      trncclCommAbort(comm_);
      trncclCommDestroy(std::exchange(comm_, nullptr));
      throw;
    }
  }
  return result;
}

std::string ProcessGroupNeuron::WhyNotJoined(trncclResult_t result,
                                             const std::string& error,
                                             MemberWatch& members,
                                             GivenUp& given_up) const {
  const bool is_own = result != trncclRemoteError && result != trncclTimeout &&
                      result != trncclAborted;
  if (is_own) {
    const std::string why =
        Names(error) ? error
                     : c10::str(error, "; origin: ", NameOfSelf(getRank()));
    given_up.Tell(c10::str(Where(), ": ", why));
    return why;
  }
  if (Names(error)) return error;
  const auto until = std::chrono::steady_clock::now() + kWordOfLoss;
  do {
    std::string why = given_up.HeardNow();
    if (why.empty()) why = members.WhoIsGone();
    if (!why.empty()) return why;
    std::this_thread::sleep_for(kBetweenLooks);
  } while (std::chrono::steady_clock::now() < until);
  return error;
}

void ProcessGroupNeuron::Discard() {
  if (comm_ == nullptr) return;
  LivingGroups::Get().Remove(comm_);
  trncclCommDestroy(std::exchange(comm_, nullptr));
}

void ProcessGroupNeuron::Connect() {
  // A group that's made again by the same store must not find an old address.
  const std::string key = c10::str("trnccl_unique_id/", connections_++);
  const auto& ranks = options_->global_ranks_in_group;
  MemberWatch members({ranks.begin(), ranks.end()});
  while (true) {
    const std::vector<uint8_t> address = Address(key, members);
    GivenUp given_up(store_.get(), key, address);
    const trncclResult_t result = Join(IdOf(address), members, given_up);
    if (result == trncclSuccess) break;
    const std::string error = trncclGetLastError(comm_);
    Discard();
    const std::string why = WhyNotJoined(result, error, members, given_up);
    // What a run that ended badly has left there, rank 0 of this one replaces.
    const bool may_be_old =
        getRank() != 0 && result == trncclRemoteError && !Names(why);
    if (may_be_old && Changes(store_.get(), key, address)) continue;
    std::rethrow_exception(ExceptionOf(
        result,
        may_be_old
            ? c10::str(Where(), ": rank 0 of the group has ended, or can't be ",
                       "reached: ", why, "; origin: rank 0")
            : c10::str(Where(), ": ", why)));
  }
  LivingGroups::Get().Add(comm_, {ranks.begin(), ranks.end()});
  // All have read it by now.
  if (getRank() == 0) store_->deleteKey(key);
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
  Discard();
}

void ProcessGroupNeuron::suspend() {
  waitForPendingWorks();
  shutdown();
}

void ProcessGroupNeuron::resume() {
  if (comm_ == nullptr) Connect();
}

std::unordered_map<std::string, uint64_t> ProcessGroupNeuron::getMemoryStats() {
  const SharedMemoryUse use = SharedMemoryInUse();
  return {{"used_bytes", use.used_bytes}, {"kept_bytes", use.kept_bytes}};
}

ProcessGroupNeuron::OptionsPointer ProcessGroupNeuron::OptionsFrom(
    const c10::intrusive_ptr<c10d::Backend::Options>& options) const {
  auto made = c10::make_intrusive<Options>(
      options_->backend, options ? options->timeout : options_->timeout);
  if (options) {
    made->group_name = options->group_name;
    made->group_desc = options->group_desc;
  }
  return made;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupNeuron::MakeFrom(
    const StorePointer& store, const std::vector<int64_t>& members,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto me = std::find(members.begin(), members.end(), getRank());
  if (me == members.end()) return nullptr;
  const OptionsPointer made = OptionsFrom(options);
  const auto& ours = options_->global_ranks_in_group;
  for (const int64_t member : members) {
    made->global_ranks_in_group.push_back(
        ours.empty() ? static_cast<uint64_t>(member)
                     : ours[static_cast<size_t>(member)]);
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
  return c10::make_intrusive<ProcessGroupNeuron>(store, rank, size,
                                                 OptionsFrom(options));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupNeuron::shrink(
    const std::vector<int64_t>& ranks_to_exclude, int flags,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  if (flags == kShrinkAbort) abort();
  std::vector<int64_t> survivors;
  for (int64_t rank = 0; rank < getSize(); ++rank) {
    if (std::find(ranks_to_exclude.begin(), ranks_to_exclude.end(), rank) ==
        ranks_to_exclude.end())
      survivors.push_back(rank);
  }
  const std::string name = c10::str("shrink/", ++shrinks_);
  const auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_);
  auto made = options ? options : getBackendOptions();
  if (!options) made->group_name += "/" + name;
  return MakeFrom(store, survivors, made);
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
