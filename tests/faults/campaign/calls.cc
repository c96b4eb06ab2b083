// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/faults/campaign/calls.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/api/every_call.h"

namespace trnccl {
namespace {

constexpr size_t kEngineElements = 1 << 18;

Attempt AttemptOf(trncclResult_t result) {
  Attempt attempt;
  attempt.result = result;
  if (result != trncclSuccess) attempt.text = trncclGetLastError(nullptr);
  return attempt;
}

Attempts Blocking(const EachCall& call) {
  return [call](trncclComm_t comm) {
    Attempt attempt = AttemptOf(call.issue(comm, nullptr));
    if (attempt.result == trncclSuccess) attempt.is_right = call.is_right();
    return attempt;
  };
}

// Waits for all and frees them; the first error, if there is one.
Attempt WaitForAll(const std::vector<trncclRequest_t>& requests,
                   const std::function<bool(size_t i)>& is_right) {
  Attempt all;
  for (size_t i = 0; i < requests.size(); ++i) {
    Attempt one =
        AttemptOf(trncclRequestWait(requests[i], TRNCCL_WAIT_FOREVER));
    if (one.result == trncclSuccess) one.is_right = is_right(i);
    trncclRequestFree(requests[i]);
    if (all.result == trncclSuccess) {
      one.is_right = one.is_right && all.is_right;
      all = one;
    }
    all.is_right = all.is_right && one.is_right;
  }
  return all;
}

Attempts Asynchronous(const std::vector<EachCall>& calls) {
  return [calls](trncclComm_t comm) {
    std::vector<trncclRequest_t> requests;
    Attempt begun;
    for (const EachCall& call : calls) {
      trncclRequest_t request = nullptr;
      begun = AttemptOf(call.issue(comm, &request));
      if (begun.result != trncclSuccess) break;
      requests.push_back(request);
    }
    const Attempt waited =
        WaitForAll(requests, [&](size_t i) { return calls[i].is_right(); });
    return waited.result == trncclSuccess && begun.result != trncclSuccess
               ? begun
               : waited;
  };
}

// A message to the next rank, and one from the rank before.
class Ring {
 public:
  Ring(const Fault& fault, int rank)
      : ranks_(fault.ranks), rank_(rank), out_(fault.count), in_(fault.count) {}

  void Fill() {
    ++round_;
    std::fill(in_.begin(), in_.end(), 0);
    for (size_t i = 0; i < out_.size(); ++i)
      out_[i] = ValueOf(rank_, i + round_);
  }

  trncclResult_t Send(trncclComm_t comm, trncclRequest_t* request) {
    return trncclSend(out_.data(), out_.size(), trncclUint32,
                      (rank_ + 1) % ranks_, 0, comm, request);
  }

  trncclResult_t Receive(trncclComm_t comm, trncclRequest_t* request) {
    return trncclRecv(in_.data(), in_.size(), trncclUint32, Before(), 0,
                      nullptr, comm, request);
  }

  bool IsRight() const {
    for (size_t i = 0; i < in_.size(); ++i)
      if (in_[i] != ValueOf(Before(), i + round_)) return false;
    return true;
  }

 private:
  int Before() const { return (rank_ + ranks_ - 1) % ranks_; }

  const int ranks_;
  const int rank_;
  size_t round_ = 0;
  std::vector<uint32_t> out_;
  std::vector<uint32_t> in_;
};

Attempts SendReceive(const Fault& fault, int rank) {
  auto ring = std::make_shared<Ring>(fault, rank);
  return [ring](trncclComm_t comm) {
    ring->Fill();
    trncclRequest_t receive = nullptr;
    const Attempt received = AttemptOf(ring->Receive(comm, &receive));
    if (received.result != trncclSuccess) return received;
    const Attempt sent = AttemptOf(ring->Send(comm, nullptr));
    const Attempt waited =
        WaitForAll({receive}, [&](size_t) { return ring->IsRight(); });
    return sent.result != trncclSuccess ? sent : waited;
  };
}

Attempts Group(const Fault& fault, int rank, std::vector<EachCall> calls) {
  auto ring = std::make_shared<Ring>(fault, rank);
  calls.erase(calls.begin() + 3, calls.end());
  return [ring, calls](trncclComm_t comm) {
    ring->Fill();
    trncclGroupStart();
    ring->Send(comm, nullptr);
    for (const EachCall& call : calls) call.issue(comm, nullptr);
    ring->Receive(comm, nullptr);
    Attempt attempt = AttemptOf(trncclGroupEnd());
    if (attempt.result != trncclSuccess) return attempt;
    attempt.is_right = ring->IsRight();
    for (const EachCall& call : calls)
      attempt.is_right = call.is_right() && attempt.is_right;
    return attempt;
  };
}

// On memory that peers have mapped.
Attempts OnTheEngine(const Fault& fault, int rank) {
  void* memory = nullptr;
  const size_t bytes = kEngineElements * sizeof(uint32_t);
  if (trncclMemAlloc(&memory, bytes) != trncclSuccess) std::abort();
  const std::shared_ptr<uint32_t> values(static_cast<uint32_t*>(memory),
                                         trncclMemFree);
  const int ranks = fault.ranks;
  return [values, ranks, rank](trncclComm_t comm) {
    for (size_t i = 0; i < kEngineElements; ++i)
      values.get()[i] = ValueOf(rank, i);
    Attempt attempt =
        AttemptOf(trncclAllReduce(values.get(), values.get(), kEngineElements,
                                  trncclUint32, trncclSum, comm, nullptr));
    if (attempt.result != trncclSuccess) return attempt;
    for (size_t i = 0; i < kEngineElements; ++i) {
      uint32_t sum = 0;
      for (int each = 0; each < ranks; ++each) sum += ValueOf(each, i);
      attempt.is_right = attempt.is_right && values.get()[i] == sum;
    }
    return attempt;
  };
}

// A child that fails isn't what the phase ends with: its parent fails as well.
Attempts Split(int rank) {
  return [rank](trncclComm_t comm) {
    trncclComm_t child = nullptr;
    const Attempt split =
        AttemptOf(trncclCommSplit(comm, 0, rank, &child, nullptr));
    if (split.result != trncclSuccess) return split;
    trncclBarrier(child, nullptr);
    return AttemptOf(trncclCommDestroy(child));
  };
}

// Nothing until there's an error. A rank that stops or starves is none.
Attempts Idle() {
  return [](trncclComm_t comm) {
    trncclResult_t error = trncclSuccess;
    trncclCommGetAsyncError(comm, &error);
    Attempt attempt;
    attempt.result = error;
    if (error != trncclSuccess) attempt.text = trncclGetLastError(comm);
    return attempt;
  };
}

Attempts Mixed(const Fault& fault, int rank) {
  std::vector<Attempts> all;
  const std::vector<EachCall> calls =
      EveryCollective({fault.ranks, rank}, fault.count);
  for (const EachCall& call : calls) all.push_back(Blocking(call));
  all.push_back(Asynchronous(calls));
  all.push_back(SendReceive(fault, rank));
  all.push_back(Group(fault, rank, calls));
  all.push_back(Split(rank));
  auto random = std::make_shared<std::mt19937_64>(fault.seed);
  return [all, random](trncclComm_t comm) {
    return all[(*random)() % all.size()](comm);
  };
}

}  // namespace

Attempts MakeAttempts(const Fault& fault, int rank) {
  const auto calls = [&] {
    return EveryCollective({fault.ranks, rank}, fault.count);
  };
  if (fault.phase == "idle") return Idle();
  if (fault.phase == "send_receive") return SendReceive(fault, rank);
  if (fault.phase == "group") return Group(fault, rank, calls());
  if (fault.phase == "asynchronous") return Asynchronous(calls());
  if (fault.phase == "engine") return OnTheEngine(fault, rank);
  if (fault.phase == "split") return Split(rank);
  for (const EachCall& call : calls())
    if (call.name == fault.phase) return Blocking(call);
  return Mixed(fault, rank);
}

}  // namespace trnccl
