// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Each rank sends S bytes to the next rank and receives as many from the one
// before.
#include "bindings/mpi/benchmark.h"

namespace trnccl::perf {
namespace {

class SendRecv : public Collective {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits = {.name = "sendrecv",
                                       .call = "SendRecv",
                                       .has_in_place = false,
                                       .requests_per_call = 2};
    return kTraits;
  }

  // Each rank copies what it receives.
  Shape Plan(const Problem& problem) override {
    const size_t count = problem.elements;
    const int n = problem.ranks;
    next_ = (problem.rank + 1) % n;
    previous_ = (problem.rank + n - 1) % n;
    Shape shape = {count, count, count, count};
    shape.result = {{.source = previous_, .count = count}};
    shape.work = {.outputs = 1, .elements = count};
    return shape;
  }

  trncclResult_t Call(const Arguments& a, trncclRequest_t* requests) override {
    trncclResult_t result = trncclGroupStart();
    if (result != trncclSuccess) return result;
    // A refusal inside the group is GroupEnd's result too.
    trncclSend(a.send, a.count, a.type, next_, kTag, a.comm, requests);
    trncclRecv(a.recv, a.count, a.type, previous_, kTag, nullptr, a.comm,
               requests == nullptr ? nullptr : requests + 1);
    return trncclGroupEnd();
  }

  void CallMpi(const MpiArguments& a) override {
    MPI_Sendrecv(a.send, a.count, a.type, next_, kTag, a.recv, a.count, a.type,
                 previous_, kTag, a.comm, MPI_STATUS_IGNORE);
  }

 private:
  static constexpr int kTag = 0;

  int next_ = 0;
  int previous_ = 0;
};

}  // namespace
}  // namespace trnccl::perf

int main(int argc, char** argv) {
  return trnccl::perf::RunBenchmark<trnccl::perf::SendRecv>(argc, argv);
}
