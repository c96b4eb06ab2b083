// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Each rank sends a part of its S bytes to every rank.
#include "bindings/mpi/benchmark.h"

namespace trnccl::perf {
namespace {

class AllToAll : public Collective {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits = {
        .name = "alltoall", .call = "AllToAll", .has_in_place = false};
    return kTraits;
  }

  // Each rank copies the parts that are for it.
  Shape Plan(const Problem& problem) override {
    const size_t count = problem.part();
    const size_t all = static_cast<size_t>(problem.ranks) * count;
    Shape shape = {count, all, all, all};
    shape.bus_factor = ShareOfOthers(problem.ranks);
    for (int rank = 0; rank < problem.ranks; ++rank)
      shape.result.push_back(
          {.source = rank,
           .begin = static_cast<size_t>(problem.rank) * count,
           .at = static_cast<size_t>(rank) * count,
           .count = count});
    shape.work = {.outputs = 1, .elements = all};
    return shape;
  }

  trncclResult_t Call(const Arguments& a, trncclRequest_t* requests) override {
    return trncclAllToAll(a.send, a.recv, a.count, a.type, a.comm, requests);
  }

  void CallMpi(const MpiArguments& a) override {
    MPI_Alltoall(a.send, a.count, a.type, a.recv, a.count, a.type, a.comm);
  }
};

}  // namespace
}  // namespace trnccl::perf

int main(int argc, char** argv) {
  return trnccl::perf::RunBenchmark<trnccl::perf::AllToAll>(argc, argv);
}
