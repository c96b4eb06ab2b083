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
// How long rank 0 goes on to wait once the group has failed.
constexpr std::chrono::seconds kStragglers{2};

}  // namespace

// How long this rank waits. A rank that dies makes the group fail, and the
// barrier doesn't wait for it then; but of a group whose calls have failed
// before it's asked who is still there.
class ProcessGroupNeuron::Patience {
 public:
  Patience(const ProcessGroupNeuron& group, std::chrono::milliseconds timeout)
      : group_(group), known_(group.log_->failed()) {
    if (group.getRank() != 0) extra_ = kAnswer;
    until_ = began_ + timeout + extra_;
  }

  // Whether the store comes to hold the key, which that rank sets.
  bool Await(const std::string& key, int rank) {
    constexpr std::chrono::microseconds kLongest{5000};
    for (std::chrono::microseconds pause{50}; !group_.store_->check({key});
         pause = std::min(pause * 2, kLongest)) {
      if (pause == kLongest && group_.IsLost(rank)) {
        until_ = Clock::now();
        return group_.store_->check({key});
      }
      if (!known_ && !group_.Failure().empty()) {
        known_ = true;
        until_ = std::min(until_, Clock::now() + kStragglers + extra_);
      }
      if (Clock::now() >= until_) return false;
      std::this_thread::sleep_for(pause);
    }
    return true;
  }

  // "500 ms", and why the group has failed, if it has.
  std::string Waited() const {
    const std::string failure = group_.Failure();
    return c10::str(
        std::chrono::duration_cast<std::chrono::milliseconds>(until_ - began_)
            .count(),
        " ms", failure.empty() ? "" : "; the group has failed: ", failure);
  }

 private:
  const ProcessGroupNeuron& group_;
  Clock::time_point began_ = Clock::now();
  std::chrono::seconds extra_{0};
  Clock::time_point until_;
  bool known_;
};

std::string ProcessGroupNeuron::Failure() const {
  trncclResult_t error = trncclSuccess;
  if (trncclCommGetAsyncError(comm_, &error) != trncclSuccess ||
      error == trncclSuccess)
    return "";
  return trncclGetLastError(comm_);
}

bool ProcessGroupNeuron::IsLost(int rank) const {
  trncclRankState_t state = trncclRankPresent;
  return trncclCommGetRankState(comm_, rank, &state) == trncclSuccess &&
         state == trncclRankLost;
}

std::string ProcessGroupNeuron::DescribeRank(int rank) const {
  char* text = nullptr;
  if (trncclCommDescribeRank(comm_, rank, &text) != trncclSuccess)
    return trncclGetLastError(nullptr);
  const std::string described(text);
  trncclFreeText(text);
  return described;
}

std::string ProcessGroupNeuron::CollectArrivals(
    const std::string& key, std::chrono::milliseconds timeout, Missing wanted) {
  Patience patience(*this, timeout);
  std::vector<int> missing;
  for (int rank = 1; rank < getSize(); ++rank) {
    const std::string arrival = key + std::to_string(rank);
    if (patience.Await(arrival, rank)) {
      store_->deleteKey(arrival);
      continue;
    }
    missing.push_back(rank);
    if (wanted == Missing::kFirst) break;
  }
  if (missing.empty()) return "";
  std::string whereabouts;
  for (const int rank : missing) whereabouts += "; " + DescribeRank(rank);
  return c10::str(
      "Rank 0 timed out in monitoredBarrier: ",
      missing.size() == 1 ? "Rank " : "Ranks ", c10::Join(", ", missing),
      " failed to pass monitoredBarrier in ", patience.Waited(), whereabouts);
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
    Patience patience(*this, timeout);
    const std::string answer =
        patience.Await(key + "result", 0)
            ? store_->get_to_str(key + "result")
            : c10::str(".no answer within ", patience.Waited(), "; ",
                       DescribeRank(0));
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
