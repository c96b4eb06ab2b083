// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of ProcessGroupNeuron that finds out who doesn't come. It goes by
// the store, so that a rank that's missing costs nothing but the error.
//
// PyTorch's own tests know the errors by their words.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "bindings/torch/process_group.h"

namespace trnccl::torch_binding {
namespace {

using Clock = std::chrono::steady_clock;

// How much longer than rank 0 the others wait for its answer.
constexpr std::chrono::seconds kAnswer{2};

bool Await(c10d::Store* store, const std::string& key,
           Clock::time_point until) {
  constexpr std::chrono::microseconds kLongest{5000};
  for (std::chrono::microseconds pause{50}; !store->check({key});
       pause = std::min(pause * 2, kLongest)) {
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace

std::string ProcessGroupNeuron::CollectArrivals(
    const std::string& key, std::chrono::milliseconds timeout, Missing wanted) {
  const auto until = Clock::now() + timeout;
  std::vector<int> missing;
  for (int rank = 1; rank < getSize(); ++rank) {
    const std::string arrival = key + std::to_string(rank);
    if (Await(store_.get(), arrival, until)) {
      store_->deleteKey(arrival);
      continue;
    }
    missing.push_back(rank);
    if (wanted == Missing::kFirst) break;
  }
  if (missing.empty()) return "";
  return c10::str("Rank 0 timed out in monitoredBarrier: ",
                  missing.size() == 1 ? "Rank " : "Ranks ",
                  c10::Join(", ", missing),
                  " failed to pass monitoredBarrier in ", timeout.count(),
                  " ms; see whether they run and make the same calls");
}

void ProcessGroupNeuron::monitoredBarrier(const c10d::BarrierOptions& options,
                                          bool wait_all_ranks) {
  const auto timeout = options.timeout == c10d::kUnsetTimeout
                           ? options_->timeout
                           : options.timeout;
  const auto key_of = [](uint64_t barrier) {
    return c10::str("monitored_barrier/", barrier, "/");
  };
  const std::string key = key_of(++monitored_barriers_);
  std::string failure;
  if (getRank() == 0) {
    failure = CollectArrivals(key, timeout,
                              wait_all_ranks ? Missing::kAll : Missing::kFirst);
    // Who has come to this barrier knows the last one's result.
    if (failure.empty() && monitored_barriers_ > 1)
      store_->deleteKey(key_of(monitored_barriers_ - 1) + "result");
    store_->set(key + "result", "." + failure);
  } else {
    store_->set(key + std::to_string(getRank()), std::string("."));
    std::string answer = c10::str(".no answer within ", timeout.count(), " ms");
    if (Await(store_.get(), key + "result", Clock::now() + timeout + kAnswer))
      answer = store_->get_to_str(key + "result");
    if (answer.size() > 1) {
      failure = c10::str("Rank ", getRank(),
                         " successfully reached monitoredBarrier, but received "
                         "errors while waiting for send/recv from rank 0: ",
                         answer.substr(1));
    }
  }
  if (!failure.empty())
    C10_THROW_ERROR(DistBackendError, c10::str("[", Where(), "]: ", failure));
}

}  // namespace trnccl::torch_binding
